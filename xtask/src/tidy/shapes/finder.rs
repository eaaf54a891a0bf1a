//! Finds the shapes in the syntax tree of a file.

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprAssign, ExprCall, ExprClosure, ExprIndex, ExprLet, ExprMethodCall,
    ExprStruct, Field, FnArg, GenericArgument, Local, Pat, PathArguments, ReturnType, Signature,
    Token, Type, TypePath, UnOp,
};

use super::{Shape, Sighting, closures, rules_of_macros};
use crate::tidy::syntax::{line_of, without_parentheses};

/// How deep `Option` and `Result` may lie in each other.
const WRAPPERS_MAX: usize = 2;
/// How many elements a tuple type may have.
const ELEMENTS_MAX: usize = 2;

/// Walks over a file and notes the shapes that it meets.
pub(super) struct Finder {
    found: Vec<Sighting>,
}

impl Finder {
    /// The shapes of a file, in the order of its lines.
    pub(super) fn find(file: &syn::File) -> Vec<Sighting> {
        let mut it = Self { found: Vec::new() };
        it.visit_file(file);
        it.found.sort_by_key(|sighting| sighting.line);
        it.found
    }

    fn note(&mut self, shape: Shape, syntax: &impl Spanned) {
        let line = line_of(syntax);
        self.found.push(Sighting { shape, line });
    }

    fn note_if(&mut self, is_found: bool, shape: Shape, syntax: &impl Spanned) {
        if is_found {
            self.note(shape, syntax);
        }
    }

    /// Walks over the body of a rule of a macro: items, statements, or something else that is not
    /// read.
    fn visit_body(&mut self, body: TokenStream) {
        if let Ok(items) = syn::parse2::<syn::File>(body.clone()) {
            self.visit_file(&items);
        } else if let Ok(statements) = Block::parse_within.parse2(body) {
            for statement in &statements {
                self.visit_stmt(statement);
            }
        }
    }

    /// Notes the long tuples in the type of a field, a parameter or a result.
    fn note_long_tuples(&mut self, of: &Type) {
        let mut tuples = LongTuples { lines: Vec::new() };
        tuples.visit_type(of);
        for line in tuples.lines {
            let shape = Shape::LongTuple;
            self.found.push(Sighting { shape, line });
        }
    }
}

impl Visit<'_> for Finder {
    fn visit_local(&mut self, local: &Local) {
        if let Some(init) = &local.init {
            let is_both = is_tuple_pattern(&local.pat) && is_tuple(&init.expr);
            self.note_if(is_both, Shape::TupleLet, local);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_let(&mut self, condition: &ExprLet) {
        let is_both = is_tuple_pattern(&condition.pat) && is_tuple(&condition.expr);
        self.note_if(is_both, Shape::TupleLet, condition);
        visit::visit_expr_let(self, condition);
    }

    fn visit_expr_assign(&mut self, assignment: &ExprAssign) {
        let is_both = is_tuple(&assignment.left) && is_tuple(&assignment.right);
        self.note_if(is_both, Shape::TupleAssignment, assignment);
        visit::visit_expr_assign(self, assignment);
    }

    fn visit_signature(&mut self, signature: &Signature) {
        for parameter in &signature.inputs {
            let FnArg::Typed(parameter) = parameter else {
                continue;
            };
            self.note_if(
                is_tuple_pattern(&parameter.pat),
                Shape::TupleParameter,
                parameter,
            );
            self.note_long_tuples(&parameter.ty);
        }
        if let ReturnType::Type(_, result) = &signature.output {
            self.note_long_tuples(result);
        }
        visit::visit_signature(self, signature);
    }

    fn visit_field(&mut self, field: &Field) {
        self.note_long_tuples(&field.ty);
        visit::visit_field(self, field);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if call.method == "filter" {
            let ignores = call.args.first().is_some_and(is_closure_that_ignores);
            self.note_if(ignores, Shape::FilterAsIf, &call.method);
        } else if call.method == "for_each" {
            let is_chain = receiver_is_call(call, "into_iter");
            self.note_if(is_chain, Shape::ForEachOfOption, &call.method);
        } else if call.method == "ok_or" || call.method == "ok_or_else" {
            let is_unit = receiver_is_unit_option(call);
            self.note_if(is_unit, Shape::ThenSomeUnit, &call.method);
        } else if ["copied", "cloned", "flatten"]
            .iter()
            .any(|name| call.method == name)
        {
            let is_result = receiver_is_call(call, "ok");
            self.note_if(is_result, Shape::FlattenedResult, &call.method);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_index(&mut self, index: &ExprIndex) {
        let is_array = matches!(without_parentheses(&index.expr), Expr::Array(_));
        let is_found = match number_made_of(&index.index) {
            // Nobody indexes an array literal by a small number.
            Some(source) => is_array || is_bool(source),
            None => false,
        };
        self.note_if(is_found, Shape::IndexByBool, index);
        visit::visit_expr_index(self, index);
    }

    fn visit_type_path(&mut self, path: &TypePath) {
        let depth = wrappers(path);
        if depth > WRAPPERS_MAX {
            // The wrappers inside this one belong to it.
            self.note(Shape::NestedOption, path);
            return;
        }
        visit::visit_type_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        if let Some(outer) = wrapper_made(call)
            && let Some(argument) = call.args.first()
            && let Expr::Call(argument) = without_parentheses(argument)
            && let Some(inner) = wrapper_made(argument)
        {
            self.note_if(outer != inner, Shape::NestedResult, call);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_closure(&mut self, closure: &ExprClosure) {
        let assigns = closures::assigns_around_itself(closure);
        self.note_if(assigns, Shape::AssigningClosure, closure);
        visit::visit_expr_closure(self, closure);
    }

    fn visit_expr_struct(&mut self, literal: &ExprStruct) {
        for field in &literal.fields {
            let is_later = is_greatest_number(&field.expr) && !is_limit(&field.member);
            self.note_if(is_later, Shape::FilledInLater, field);
        }
        visit::visit_expr_struct(self, literal);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        if call.path.is_ident("macro_rules") {
            for body in rules_of_macros::bodies(call.tokens.clone()) {
                self.visit_body(body);
            }
            return;
        }
        // Macros such as `assert!` take expressions; others take statements, or something else that
        // is not read.
        if let Ok(arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated)
        {
            for argument in &arguments {
                self.visit_expr(argument);
            }
        } else if let Ok(statements) = call.parse_body_with(Block::parse_within) {
            for statement in &statements {
                self.visit_stmt(statement);
            }
        }
    }
}

/// Finds the tuple types with too many elements.
struct LongTuples {
    lines: Vec<usize>,
}

impl Visit<'_> for LongTuples {
    fn visit_type_tuple(&mut self, tuple: &syn::TypeTuple) {
        if tuple.elems.len() > ELEMENTS_MAX {
            self.lines.push(line_of(tuple));
        }
        visit::visit_type_tuple(self, tuple);
    }
}

fn is_tuple_pattern(pattern: &Pat) -> bool {
    match pattern {
        Pat::Tuple(tuple) => !tuple.elems.is_empty(),
        Pat::Type(typed) => is_tuple_pattern(&typed.pat),
        Pat::Reference(reference) => is_tuple_pattern(&reference.pat),
        Pat::Paren(inner) => is_tuple_pattern(&inner.pat),
        _ => false,
    }
}

fn is_tuple(expression: &Expr) -> bool {
    match without_parentheses(expression) {
        Expr::Tuple(_) => true,
        Expr::Reference(reference) => is_tuple(&reference.expr),
        _ => false,
    }
}

/// Whether an expression is `usize::MAX`, or the like.
fn is_greatest_number(expression: &Expr) -> bool {
    match without_parentheses(expression) {
        Expr::Path(value) => {
            let segments = &value.path.segments;
            segments.len() > 1 && segments.last().is_some_and(|last| last.ident == "MAX")
        }
        _ => false,
    }
}

/// Whether a field is a limit by its name. The greatest number is then no placeholder: it means
/// that there is no limit.
fn is_limit(member: &syn::Member) -> bool {
    match member {
        syn::Member::Named(name) => {
            let name = name.to_string();
            name.split('_').any(|word| word == "limit" || word == "max")
        }
        syn::Member::Unnamed(_) => false,
    }
}

fn is_closure_that_ignores(argument: &Expr) -> bool {
    let Expr::Closure(closure) = argument else {
        return false;
    };
    matches!(closure.inputs.first(), Some(Pat::Wild(_)))
}

/// Whether a method is called on the result of another method of this name.
fn receiver_is_call(call: &ExprMethodCall, name: &str) -> bool {
    match without_parentheses(&call.receiver) {
        Expr::MethodCall(receiver) => receiver.method == name,
        _ => false,
    }
}

/// Whether a method is called on `x.then_some(())` or `x.then(|| ())`.
fn receiver_is_unit_option(call: &ExprMethodCall) -> bool {
    let Expr::MethodCall(receiver) = without_parentheses(&call.receiver) else {
        return false;
    };
    let Some(argument) = receiver.args.first() else {
        return false;
    };
    match argument {
        Expr::Tuple(tuple) => receiver.method == "then_some" && tuple.elems.is_empty(),
        Expr::Closure(closure) => {
            let is_unit = matches!(&*closure.body, Expr::Tuple(tuple) if tuple.elems.is_empty());
            receiver.method == "then" && is_unit
        }
        _ => false,
    }
}

/// What an index is converted from: the argument of `usize::from`, or the left side of `as usize`.
fn number_made_of(index: &Expr) -> Option<&Expr> {
    match without_parentheses(index) {
        Expr::Cast(cast) => Some(&cast.expr),
        Expr::Call(call) => {
            let Expr::Path(function) = &*call.func else {
                return None;
            };
            let names = &function.path.segments;
            let is_from = names.len() == 2 && names[0].ident == "usize" && names[1].ident == "from";
            if is_from { call.args.first() } else { None }
        }
        _ => None,
    }
}

/// Whether the form of an expression, or its name, says that it is a bool.
fn is_bool(expression: &Expr) -> bool {
    let is_question = |name: String| name.starts_with("is_") || name.starts_with("has_");
    match without_parentheses(expression) {
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::Eq(_)
                | BinOp::Ne(_)
                | BinOp::Lt(_)
                | BinOp::Le(_)
                | BinOp::Gt(_)
                | BinOp::Ge(_)
                | BinOp::And(_)
                | BinOp::Or(_)
        ),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Not(_)) && is_bool(&unary.expr),
        Expr::Lit(literal) => matches!(literal.lit, syn::Lit::Bool(_)),
        Expr::Macro(call) => call.mac.path.is_ident("matches"),
        Expr::MethodCall(call) => is_question(call.method.to_string()),
        Expr::Path(path) => match path.path.get_ident() {
            Some(name) => is_question(name.to_string()),
            None => false,
        },
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => is_question(name.to_string()),
            syn::Member::Unnamed(_) => false,
        },
        _ => false,
    }
}

/// How many of `Option` and `Result` lie in each other, beginning with this type.
fn wrappers(path: &TypePath) -> usize {
    let Some(last) = path.path.segments.last() else {
        return 0;
    };
    if last.ident != "Option" && last.ident != "Result" {
        return 0;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return 1;
    };
    let inner = arguments.args.iter().map(|argument| match argument {
        GenericArgument::Type(Type::Path(inner)) => wrappers(inner),
        _ => 0,
    });
    1 + inner.max().unwrap_or(0)
}

/// `Ok` or `Err`, if a call makes a result.
fn wrapper_made(call: &ExprCall) -> Option<&'static str> {
    let Expr::Path(function) = &*call.func else {
        return None;
    };
    ["Ok", "Err"]
        .into_iter()
        .find(|name| function.path.is_ident(name))
}
