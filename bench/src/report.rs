//! The results as a page of Markdown, written wholly from them.

use lab::bench::KeyShape;
use lab::comparison::{digits, grouped, spread};

use crate::machine::MachineDescription;
use crate::measure::{Plan, key_shape_argument};
use crate::metric::Metric;
use crate::peers::PeerKind;
use crate::table::tables;
use crate::turns::Results;

/// Medians that are nearer than this are called about equal.
const EQUAL: f64 = 1.05;

/// The data of the page.
pub(crate) struct Page<'r> {
    /// The results with keys of each shape.
    pub(crate) results: &'r [Results],
    pub(crate) plan: &'r Plan,
    pub(crate) kinds: &'r [&'static PeerKind],
    pub(crate) runs: usize,
    pub(crate) machine: &'r MachineDescription,
}

/// How two stores compare in one figure.
struct Against {
    metric: &'static Metric,
    ours: f64,
    peer: &'static PeerKind,
    theirs: f64,
    /// How many times better the peer is.
    ratio: f64,
}

/// How far the runs of a store are apart in one figure.
struct Spread {
    ratio: f64,
    store: &'static str,
    metric: &'static Metric,
}

impl Page<'_> {
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![self.head()];
        // Losses with any keys come before all figures.
        parts.extend(self.results.iter().map(|results| self.verdict(results)));
        parts.extend(self.results.iter().map(|results| self.tables(results)));
        parts.push(self.method());
        parts.push(self.settings());
        parts.join("\n")
    }

    /// Whether all keys are random, so that the page need not say with which ones a figure was
    /// measured.
    fn has_only_random_keys(&self) -> bool {
        matches!(self.results, [results] if results.key_shape == KeyShape::Random)
    }

    /// A heading, with the shape of keys if there are others than random ones.
    fn heading(&self, text: &str, results: &Results) -> String {
        if self.has_only_random_keys() {
            format!("## {text}\n\n")
        } else {
            format!("## {text}: {} keys\n\n", results.key_shape.name())
        }
    }

    /// What is stored, as a part of a sentence.
    fn entries_in_words(&self) -> String {
        let shape = self.plan.shape;
        let entries = grouped(shape.entries);
        let bytes = shape.value_bytes;
        if self.has_only_random_keys() {
            let key_bytes = shape.random_key_bytes();
            return format!(
                "{entries} entries with keys of {key_bytes} bytes and random values of {bytes} bytes"
            );
        }
        let names: Vec<&str> = self.key_shapes().iter().map(|shape| shape.name()).collect();
        let names = names.join(", ");
        format!(
            "{entries} entries with random values of {bytes} bytes, and with keys of each of these shapes: {names}"
        )
    }

    fn key_shapes(&self) -> Vec<KeyShape> {
        self.results
            .iter()
            .map(|results| results.key_shape)
            .collect()
    }

    /// The shapes of keys as a table, if there are others than random ones.
    fn shapes(&self) -> String {
        if self.has_only_random_keys() {
            return String::new();
        }
        let mut text = "\n| keys | | an example | bytes |\n| --- | --- | --- | --- |\n".to_owned();
        for key_shape in self.key_shapes() {
            let mut key = Vec::new();
            self.plan.shape.with_keys(key_shape).key(0, &mut key);
            let bytes = match key_shape {
                KeyShape::Random => key.len().to_string(),
                _ => key_shape.key_bytes_in_words(),
            };
            let example = match key_shape {
                KeyShape::Random => "-".to_owned(),
                _ => format!("`{}`", String::from_utf8_lossy(&key)),
            };
            let name = key_shape.name();
            let description = key_shape.description();
            text += &format!("| {name} | {description} | {example} | {bytes} |\n");
        }
        text
    }

    fn head(&self) -> String {
        let MachineDescription {
            processor,
            cores,
            memory_gib,
            kernel,
            filesystem,
            sync_us,
            load: _,
        } = self.machine;
        let mut text = format!(
            "# Everleaf beside other stores\n\n\
             Everleaf and the stores that users would pick instead: {}. \
             This page is written by a program, losses included. To write it again, in the folder `bench`:\n\n\
             ```sh\n{}\n```\n\n\
             | machine | |\n| --- | --- |\n\
             | processor | {processor}, {cores} cores |\n\
             | memory | {} GiB: all data fit |\n\
             | kernel | Linux {kernel} |\n\
             | file system | {filesystem} |\n\
             | one append of 4 KiB and its `fdatasync` | {} \u{b5}s, which is {} a second |\n",
            self.entries_in_words(),
            self.command(),
            digits(*memory_gib),
            digits(*sync_us),
            digits(1e6 / sync_us),
        );
        text += &self.shapes();
        for warning in self.machine.warnings() {
            text += &format!("\n**Warning: {warning}.**\n");
        }
        for results in self.results {
            let keys = if self.has_only_random_keys() {
                String::new()
            } else {
                format!(" with {} keys", results.key_shape.name())
            };
            for (store, why) in &results.failed {
                text += &format!("\n**`{store}` failed{keys} and is left out:** {why}\n");
            }
        }
        text
    }

    fn command(&self) -> String {
        let feature = if cfg!(feature = "rocksdb") {
            " --features rocksdb"
        } else {
            ""
        };
        let mut text = format!(
            "cargo run --release{feature} -- --dir DIR --runs {} {} {}",
            self.runs,
            key_shape_argument(&self.key_shapes()),
            self.plan.arguments().join(" ")
        );
        if self.kinds.len() < crate::peers::ALL.len() {
            let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name).collect();
            text += &format!(" --store {}", names.join(" "));
        }
        text + " --report ../docs/PEERS.md --force"
    }

    /// Our engine that speaks for us: the default one, if it was measured.
    fn ours(&self, results: &Results) -> Option<&'static PeerKind> {
        let kinds = self.measured(results);
        kinds.into_iter().find(|kind| kind.is_ours)
    }

    /// The stores that did not fail.
    fn measured(&self, results: &Results) -> Vec<&'static PeerKind> {
        let failed = |kind: &PeerKind| results.failed.iter().any(|(name, _)| *name == kind.name);
        let kinds = self.kinds.iter().copied();
        kinds.filter(|kind| !failed(kind)).collect()
    }

    /// Our engine against the best peer, in every figure.
    fn against(&self, ours: &PeerKind, results: &Results) -> Vec<Against> {
        let mut peers = self.measured(results);
        peers.retain(|kind| !kind.is_ours);
        let one = |metric: &'static Metric| {
            let value = results.median(ours.name, metric)?;
            let (peer, theirs) = results.best(&peers, metric)?;
            Some(Against {
                metric,
                ours: value,
                peer,
                theirs,
                ratio: metric.advantage(theirs, value),
            })
        };
        let mut all: Vec<Against> = self.plan.metrics().filter_map(one).collect();
        all.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        all
    }

    /// Where we lose, the worst first; then where we are level and where we win, in a line each.
    fn verdict(&self, results: &Results) -> String {
        let Some(ours) = self.ours(results) else {
            return String::new();
        };
        let all = self.against(ours, results);
        if all.is_empty() {
            return String::new();
        }
        let names = |is_in: &dyn Fn(f64) -> bool| {
            let titles: Vec<String> = all
                .iter()
                .filter(|it| is_in(it.ratio))
                .map(|it| title(it.metric))
                .collect();
            if titles.is_empty() {
                "nothing".to_owned()
            } else {
                titles.join("; ")
            }
        };
        let losses: Vec<&Against> = all.iter().filter(|it| it.ratio > EQUAL).collect();
        let mut text = self.heading("Where Everleaf loses", results);
        text += &format!(
            "The default of Everleaf, `{}`, beside the best other store: it loses {} of {} figures, the worst first.\n\n",
            ours.name,
            losses.len(),
            all.len(),
        );
        for loss in &losses {
            text += &format!(
                "- **{}: `{}` is {} times better.**",
                title(loss.metric),
                loss.peer.name,
                digits(loss.ratio)
            );
            text += &format!(
                " {} against {}. ",
                loss.metric.figure(loss.theirs),
                loss.metric.figure(loss.ours)
            );
            text += loss.metric.loss;
            text += &self.engine_that_wins(loss, results);
            if self.overlap(ours, loss, results) {
                text += " The runs of both overlap, so this may be chance.";
            }
            text += "\n";
        }
        if losses.is_empty() {
            text += "Nothing.\n";
        }
        text + &format!(
            "\nAbout equal, within 5%: {}.\n\nBetter than every other store: {}.\n",
            names(&|ratio| (1.0 / EQUAL..=EQUAL).contains(&ratio)),
            names(&|ratio| ratio < 1.0 / EQUAL),
        )
    }

    /// Another engine of ours that does not lose here, in words.
    fn engine_that_wins(&self, loss: &Against, results: &Results) -> String {
        let mut engines = self.measured(results);
        engines.retain(|kind| kind.is_ours);
        match results.best(&engines, loss.metric) {
            Some((engine, value)) if loss.metric.advantage(value, loss.theirs) > EQUAL => {
                format!(
                    " The engine `{}` wins here: {}.",
                    engine.name,
                    loss.metric.figure(value)
                )
            }
            _ => String::new(),
        }
    }

    /// Whether the best run of ours is no worse than the worst of the peer.
    fn overlap(&self, ours: &PeerKind, loss: &Against, results: &Results) -> bool {
        let theirs = results.figures(loss.peer.name, loss.metric);
        let mut pairs = results
            .figures(ours.name, loss.metric)
            .into_iter()
            .flat_map(|our| theirs.iter().map(move |their| (our, *their)));
        self.runs > 1 && pairs.any(|(our, their)| loss.metric.advantage(our, their) >= 1.0)
    }

    fn tables(&self, results: &Results) -> String {
        let kinds = self.measured(results);
        let mut text = self.heading("All figures", results);
        text += &format!(
            "Medians of {} runs; the best of a line is bold. k/s: thousands a second.\n",
            self.runs
        );
        for table in tables(results, self.plan, &kinds) {
            text += &format!("\n{}", table.markdown());
        }
        text + &self.spread(&kinds, results)
    }

    /// How far the runs of a store are apart.
    fn spread(&self, kinds: &[&'static PeerKind], results: &Results) -> String {
        if self.runs < 2 {
            return "\nThere was one run only, so nothing is known of how far runs are apart.\n"
                .to_owned();
        }
        let mut spreads = Vec::new();
        for metric in self.plan.metrics() {
            for kind in kinds {
                let figures = results.figures(kind.name, metric);
                spreads.push(Spread {
                    ratio: spread(&figures),
                    store: kind.name,
                    metric,
                });
            }
        }
        spreads.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        let most: Vec<String> = spreads
            .iter()
            .take(3)
            .map(|spread| {
                format!(
                    "{} of `{}` ({} times)",
                    title(spread.metric),
                    spread.store,
                    digits(spread.ratio)
                )
            })
            .collect();
        let half = spreads
            .get(spreads.len() / 2)
            .map_or(1.0, |spread| spread.ratio);
        format!(
            "\nThe best run of a store is at most {} times its worst in half of the figures. Farthest apart: {}.\n",
            digits(half),
            most.join("; ")
        )
    }

    fn method(&self) -> String {
        let shapes = self.key_shapes();
        let shapes_take_turns = if shapes.len() > 1 {
            "- Shapes of keys take turns in the same way: in each round all stores are measured with keys of one shape, then \
             with those of the next.\n"
        } else {
            ""
        };
        let except_ascending = if shapes.iter().any(|shape| shape.is_ascending()) {
            ", but those of the shape `time` are loaded in ascending order, also where a figure says *random order*"
        } else {
            ""
        };
        format!(
            "## How it is measured\n\n\
             - Each store is measured in a process of its own, in a fresh folder, {} times. Stores take turns, and each round begins \
             with another one. What a store leaves to be written is synced before the next one begins.\n{}\
             - Keys are in random order{}. Values are random, so no store compresses them. Every read is compared with what was written, \
             and after every workload of writes up to 20,000 entries are read back; a wrong answer ends the run of that store.\n\
             - Workloads other than loads run for {} s each. Reads follow the load once the store is idle: its size on disk has not \
             changed for {} s, or 30 s are over. It is then read as a whole, so that caches are warm. At last the store is closed, opened \
             again, read as a whole once more, and written to.\n\
             - *Durable* is: on the disk, with `fdatasync` or what a store has in its place. Updates and removes are single \
             operations that all readers see at once; one sync ends them and counts. Their entries are in another order than in the \
             load. At most half of the entries are removed.\n\
             - A batch is the store's own batch or transaction.\n\
             - Readers of LMDB and redb keep one read transaction open, which is faster than one for each read. Values are not copied \
             where a store can lend them.\n\
             - Room on disk is what the files take, logs included, not their length. Memory is what the process takes beyond what it \
             took before the store was opened, what the load left in its allocator included. Stores that read and write their files by system calls also have them in the page \
             cache, which is not counted.\n\
             - The open after SIGKILL follows a load and 0.3 s of durable puts. The files are in the page cache. It ends with the \
             first answer; some stores go on recovering in the background. All acknowledged puts are then read.\n\
             - A session with a store of one entry opens it, replaces the entry durably, and closes it; the median of 21. Its room on the \
             disk is measured before the first close.\n\
             - A transaction reads three loaded entries, one after the other, and gives two of them new values, which depend on what it \
             read. Transactions are serialisable in every store. One that conflicts with others is run again until it commits, and counts \
             once. They run on a store of their own. Those that are durable together end with one sync, which counts. Hot keys \
             follow a Zipf distribution with the exponent {}. Every value that is read is checked; after each run all values are, and the \
             updates that they count must be two for each transaction, also once the store is closed and opened again.\n\
             - Not measured: data larger than memory, and snapshots.\n",
            self.runs,
            shapes_take_turns,
            except_ascending,
            self.plan.seconds,
            self.plan.idle,
            crate::transactions::HOT_THETA,
        )
    }

    fn settings(&self) -> String {
        let mut text =
            "## Settings and versions\n\n| store | version | settings |\n| --- | --- | --- |\n"
                .to_owned();
        for kind in self.kinds {
            text += &format!(
                "| `{}` | {} | {} |\n",
                kind.name,
                kind.version(),
                kind.settings
            );
        }
        text + "\nAll are built by one release profile of Cargo, with one code generation unit a crate.\n"
    }
}

/// What a figure is called outside of its table.
fn title(metric: &Metric) -> String {
    match metric.group {
        crate::metric::DURABLE => format!("durable {}", metric.title),
        _ => metric.title.to_owned(),
    }
}

#[cfg(test)]
mod tests;
