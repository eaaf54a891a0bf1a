//! Whether a closure assigns to a variable that it captures.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprAssign, ExprBinary, ExprClosure, PatIdent};

use crate::tidy::syntax::without_parentheses;

/// Whether a closure assigns to a variable that is declared outside of it.
pub(super) fn assigns_around_itself(closure: &ExprClosure) -> bool {
    let mut it = Assignments {
        declared: BTreeSet::new(),
        assigned: BTreeSet::new(),
    };
    for input in &closure.inputs {
        it.visit_pat(input);
    }
    it.visit_expr(&closure.body);
    it.assigned.difference(&it.declared).next().is_some()
}

/// The variables that a closure declares and those that it assigns to, by name.
struct Assignments {
    declared: BTreeSet<String>,
    assigned: BTreeSet<String>,
}

impl Assignments {
    fn assign(&mut self, left: &Expr) {
        if let Some(name) = variable(left) {
            self.assigned.insert(name);
        }
    }
}

impl Visit<'_> for Assignments {
    fn visit_pat_ident(&mut self, pattern: &PatIdent) {
        self.declared.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_expr_assign(&mut self, assignment: &ExprAssign) {
        self.assign(&assignment.left);
        visit::visit_expr_assign(self, assignment);
    }

    fn visit_expr_binary(&mut self, binary: &ExprBinary) {
        if is_assignment(&binary.op) {
            self.assign(&binary.left);
        }
        visit::visit_expr_binary(self, binary);
    }
}

fn is_assignment(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// The variable that an assignment changes: `a` in `a = ..`, `a.b = ..` and `a[0] = ..`, and none
/// in `*a = ..`, which may change something far away.
fn variable(left: &Expr) -> Option<String> {
    match without_parentheses(left) {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Field(field) => variable(&field.base),
        Expr::Index(index) => variable(&index.expr),
        _ => None,
    }
}
