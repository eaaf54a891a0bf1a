//! The engines and their settings, as an answer.

use std::io::Write;

use everleaf::{Contract, Engine, Values};
use serde_json::{Value, json};

use crate::context::{Context, write_json};
use crate::failure::{Answer, Outcome};

fn durable(engine: Engine) -> String {
    match engine.contract {
        Contract::Epoch => "with the end of its epoch, or a sync".to_owned(),
        Contract::Immediate(persists) | Contract::Shifting(persists) => {
            let of_words = if persists.update_words == persists.update {
                String::new()
            } else {
                format!(" ({} of a word)", persists.update_words)
            };
            let shifts = match engine.contract {
                Contract::Shifting(_) => ", more where entries shift",
                _ => "",
            };
            format!(
                "when it returns; persists of an insert {}, update {}{of_words}, remove {}{shifts}",
                persists.insert, persists.update, persists.remove
            )
        }
    }
}

fn object(engine: Engine) -> Value {
    let settings = engine.settings.iter().map(|setting| {
        let values = match setting.values {
            Values::Number(least, most) => json!({ "least": least, "most": most }),
            Values::Names(names) => json!(names),
        };
        json!({ "name": setting.name, "help": setting.help, "values": values, "fixed": setting.is_fixed })
    });
    json!({
        "engine": engine.name(),
        "paper": engine.paper,
        "durable": durable(engine),
        "trie": engine.is_trie,
        "settings": settings.collect::<Vec<_>>(),
    })
}

/// Prints these engines, with their settings.
pub fn print(engines: &[Engine], context: Context) -> Outcome {
    let mut output = Context::output();
    if context.json {
        let engines: Vec<_> = engines.iter().copied().map(object).collect();
        write_json(&mut output, &json!({ "engines": engines }))?;
    } else {
        for engine in engines.iter().copied() {
            writeln!(output, "{engine}\t{}", engine.paper)?;
            writeln!(output, "  a write is durable {}", durable(engine))?;
            for setting in engine.settings.iter().filter(|setting| !setting.is_hidden) {
                writeln!(
                    output,
                    "  {}: {}; {}",
                    setting.name,
                    setting.help,
                    setting.takes()
                )?;
            }
        }
    }
    output.flush()?;
    Ok(Answer::Yes)
}
