//! How long a store takes to open after its process was killed in mid-write, and whether it has all
//! entries that it acknowledged.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::measure::{MeasureArgs, Run, key_shape_argument};

/// How long the writer makes durable puts before it is killed.
const PUTS: Duration = Duration::from_millis(300);
/// The line that the writer prints once the load is durable.
const LOADED: &str = "loaded";

/// The writer, in a process of its own: loads, then puts new keys durably and says so, until it is
/// killed.
pub(crate) fn write_until_killed(args: &MeasureArgs) -> Result {
    let kind = args.store;
    let shape = args.plan().shape;
    let failed = |action| Failure::store(kind.name, action);
    let mut out = io::stdout().lock();
    let mut say = |line: &str| {
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|_| Failure::new("the parent is gone"))
    };
    let peer = (kind.open)(kind, &args.folder).map_err(failed("open"))?;
    peer.load(&mut crate::entries::EntrySource::new(
        shape,
        0..shape.entries,
    ))
    .map_err(failed("load"))?;
    say(LOADED)?;
    for index in shape.entries.. {
        let (key, value) = shape.entry(index, 0);
        peer.put_durable(&key, &value)
            .map_err(failed("durable put"))?;
        say(&index.to_string())?;
    }
    Ok(())
}

/// Starts the writer in an empty folder and kills it. Returns the index after the last acknowledged
/// one.
fn kill_a_writer(run: &Run, folder: &std::path::Path) -> Result<u64> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    let mut writer = Command::new(program)
        .args(["write-until-killed", "--store", run.kind.name, "--folder"])
        .arg(folder)
        .arg(key_shape_argument(&[run.plan.shape.key_shape]))
        .args(run.plan.arguments())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::new(format!("cannot start the writer: {error}")))?;
    let lines = writer
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines);
    let mut loaded = None;
    let mut end = run.plan.shape.entries;
    for line in lines.map_while(std::result::Result::ok) {
        if line == LOADED {
            loaded = Some(Instant::now());
        } else if let Ok(index) = line.parse::<u64>() {
            end = index + 1;
        }
        if loaded.is_some_and(|loaded| loaded.elapsed() > PUTS && end > run.plan.shape.entries) {
            // The acknowledgements that it wrote before it was killed are still read.
            let _ = writer.kill();
        }
    }
    let _ = writer.wait();
    if loaded.is_none() || end == run.plan.shape.entries {
        return Err(Failure::new(format!(
            "{}: the writer that was to be killed ended by itself",
            run.kind.name
        )));
    }
    Ok(end)
}

/// Measures the open after a kill, and checks the entries.
pub(crate) fn measure(run: &Run) -> Result {
    let folder = run.folder("killed")?;
    let end = kill_a_writer(run, &folder)?;
    let start = Instant::now();
    let peer = run.open(&folder)?;
    run.read(&*peer, "open after SIGKILL", [(0, 0)], true)?;
    run.tell("open-killed", start.elapsed().as_secs_f64())?;
    let acknowledged = run.plan.shape.entries..end;
    let loaded = (0..run.plan.shape.entries).step_by(50);
    run.read(
        &*peer,
        "acknowledged before SIGKILL",
        acknowledged.chain(loaded).map(|index| (index, 0)),
        true,
    )?;
    peer.close()
        .map_err(Failure::store(run.kind.name, "close"))?;
    std::fs::remove_dir_all(&folder).map_err(Failure::path("remove", &folder))
}
