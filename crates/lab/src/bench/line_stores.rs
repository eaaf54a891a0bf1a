//! The four failure-atomic line stores side by side.

use std::time::Instant;

use medium::{Dax, DaxOptions, LineStore, LineValue, Medium, node};
use serde_json::json;

use super::args::Args;
use super::keys::Random;
use super::scratch::new_scratch;
use super::subject::open_file;
use crate::comparison::{Row, Table, median};
use crate::notes::Said;
use terminal::failure::Result;

/// The region of lines, in bytes.
const REGION_BYTES: u64 = 512 << 20;
/// Stores of a run; the result is the median of five runs.
const STORES: usize = 200_000;

node! {
    /// A line, with a line before it for its twin.
    struct Twins {
        line: medium::Line,
    }
}

pub(super) fn run(args: &Args) -> Result<Said> {
    let detected = LineStore::detect();
    let mut rows = Vec::new();
    let mut table = Table {
        heading: "line store".to_owned(),
        columns: vec![
            "publish + fence (ns), a random line in 512 MiB".to_owned(),
            "failure-atomic on this processor".to_owned(),
        ],
        rows: Vec::new(),
    };
    for store in LineStore::all() {
        let ns = if store.is_supported() {
            Some(measure(args, store)?)
        } else {
            None
        };
        let whole = match (ns, store.is_known_whole()) {
            (None, _) => "no such instruction",
            (_, true) => "yes",
            (_, false) => "not known: used only if selected by option",
        };
        let shown = ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
        table.rows.push(Row {
            title: store.name().to_owned(),
            cells: vec![shown, whole.to_owned()],
            best: None,
        });
        rows.push(
            json!({ "line_store": store.name(), "ns": ns, "chosen": store == detected, "atomic": whole }),
        );
    }
    let pages = args.pages.name();
    Ok(Said {
        json: json!({ "region_bytes": REGION_BYTES, "pages": pages, "line_stores": rows }),
        text: table.markdown().trim_end().to_owned(),
    })
}

/// The median time of a publish and a fence.
fn measure(args: &Args, line_store: LineStore) -> Result<f64> {
    let folder = args.pool.clone().unwrap_or_else(|| "/dev/shm".into());
    let folder = if folder.is_dir() {
        folder
    } else {
        std::env::temp_dir()
    };
    let path = folder.join(format!("everleaf-lines-{}.region", std::process::id()));
    let scratch = new_scratch(path)?;
    time_stores(
        args,
        Dax::new(
            open_file(scratch.path())?,
            DaxOptions {
                line_store,
                ..DaxOptions::default()
            },
        ),
    )
}

fn time_stores(args: &Args, dax: std::result::Result<Dax, medium::MediumError>) -> Result<f64> {
    let dax = dax.map_err(everleaf::Error::from)?;
    dax.grow(REGION_BYTES).map_err(everleaf::Error::from)?;
    let guard = medium::MediumGuard::new(&dax);
    let mut random = Random::new(args.seed);
    let lines = REGION_BYTES / 128;
    let mut values = vec![LineValue([0; 8]); lines as usize];
    for (index, value) in values.iter_mut().enumerate() {
        let twins = guard
            .node::<Twins>(index as u64 * 128 + 64)
            .map_err(everleaf::Error::from)?;
        *value = twins.line.init(&guard, value);
    }
    guard.fence();
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..STORES {
            let index = random.below(lines);
            let twins = guard
                .node::<Twins>(index * 128 + 64)
                .map_err(everleaf::Error::from)?;
            let value = &mut values[index as usize];
            *value = twins
                .line
                .publish(&guard, value, &LineValue([index; 8]))
                .map_err(everleaf::Error::from)?;
            guard.fence();
        }
        times.push(start.elapsed().as_nanos() as f64 / STORES as f64);
    }
    Ok(median(&times))
}
