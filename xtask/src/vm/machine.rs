//! One life of the virtual machine, from its start until its power is cut.
//!
//! The guest's memory is a file, of which two parts are kept from the kernel (`memmap=`) and appear
//! as persistent memory:
//!
//! ```text
//!   0 MiB   memory
//! 384 MiB   the channel, /dev/pmem0: what the reader found, from FIGURES_AT the writer's log, from RECORDS_AT what it says
//! 448 MiB   memory
//! 464 MiB   with the medium dax /dev/pmem1, where the pool lies; otherwise memory
//! 896 MiB   memory
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::failure::{Failure, output};
use super::guest::Guest;
use super::{Args, MachineMedium};

const MIB: u64 = 1 << 20;
const CHANNEL_AT: u64 = 384 * MIB;
const CHANNEL_BYTES: u64 = 64 * MIB;
pub(super) const POOL_AT: u64 = 464 * MIB;
pub(super) const POOL_BYTES: u64 = 432 * MIB;
/// The firmware takes the end of it.
pub(super) const RAM_BYTES: u64 = POOL_AT + POOL_BYTES + 16 * MIB;
pub(super) const DISK_BYTES: u64 = 1024 * MIB;
/// Where in the channel the writer tells about its log.
pub(super) const FIGURES_AT: u64 = 7 * MIB;
/// Where in the channel the records of the writer begin.
pub(super) const RECORDS_AT: u64 = 8 * MIB;

/// The virtual machine.
const QEMU: &str = "qemu-system-x86_64";
/// How long a guest may take until its writer writes.
const BOOT_WAIT_MAX: Duration = Duration::from_secs(180);
/// How long a kernel without anything to run may take until it gives up.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often the channel is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How much of the console is shown.
const CONSOLE_LINES: usize = 15;

/// Says so if there is no QEMU.
pub(super) fn find() -> Result<(), Failure> {
    output(Command::new(QEMU).arg("--version"), "qemu-system-x86").map(|_| ())
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accelerator {
    pub(super) fn name(self) -> &'static str {
        if self == Self::Kvm { "kvm" } else { "tcg" }
    }

    /// The faster one that works. A device that is there proves little: so a kernel is started,
    /// which has nothing to run and gives up at once.
    pub(super) fn detect(kernel: &Path, console: &Path) -> Result<Self, Failure> {
        if File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_err()
        {
            return Ok(Self::Tcg);
        }
        let _ = std::fs::remove_file(console);
        let mut command = base(Self::Kvm, 1, console);
        command
            .arg("-kernel")
            .arg(kernel)
            .args(["-append", "console=ttyS0 panic=-1"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(Failure::io("start", Path::new(QEMU)))?;
        let start = Instant::now();
        let mut ended = None;
        while ended.is_none() && start.elapsed() < PROBE_WAIT_MAX {
            std::thread::sleep(LOOK_EVERY);
            ended = child
                .try_wait()
                .map_err(Failure::io("wait for", Path::new(QEMU)))?;
        }
        // If it has ended, these do nothing.
        let _ = child.kill();
        let _ = child.wait();
        let said = std::fs::metadata(console).is_ok_and(|console| console.len() > 0);
        Ok(if said && ended.is_some_and(|status| status.success()) {
            Self::Kvm
        } else {
            Self::Tcg
        })
    }
}

/// A machine that runs.
pub(super) struct VirtualMachine {
    child: Child,
    memory: File,
    console: PathBuf,
}

/// What a cut left.
pub(super) struct Left {
    /// The channel, without the zeros at its end.
    pub(super) channel: Vec<u8>,
    /// What the guest said last, if it had ended by itself before.
    pub(super) ended: Option<String>,
}

/// What the kernel is told. What it does not know becomes the environment of the first process.
/// That its timer does not tick for a while is no reason to give up: the host may be busy.
fn kernel_line(args: &Args, round: u32, seed: u64) -> String {
    let part = |at: u64, bytes: u64| format!("memmap={}M!{}M", bytes / MIB, at / MIB);
    let mut reserved = part(CHANNEL_AT, CHANNEL_BYTES);
    if args.medium == MachineMedium::Dax {
        reserved = format!("{reserved} {}", part(POOL_AT, POOL_BYTES));
    }
    let medium = args.medium.name();
    let fs = args.fs.name();
    let engine = &args.engine;
    let Args {
        threads,
        keys,
        durability,
        log_bytes,
        log_bytes_max,
        ..
    } = args;
    let syncs = if args.no_sync { "no" } else { "yes" };
    format!(
        "console=ttyS0 quiet panic=-1 no_timer_check {reserved} guest_medium={medium} guest_fs={fs} guest_round={round} \
         guest_seed={seed} guest_threads={threads} guest_keys={keys} guest_engine={engine} guest_durability={durability} guest_syncs={syncs} \
         guest_log_bytes={log_bytes} guest_log_bytes_max={log_bytes_max} guest_figures_at={FIGURES_AT} \
         guest_records_at={RECORDS_AT}"
    )
}

/// A machine without disks, that says what it says on a console.
fn base(accelerator: Accelerator, cpus: u8, console: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args([
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-accel",
        accelerator.name(),
        "-cpu",
        "max",
    ]);
    command.args([
        "-smp",
        &cpus.to_string(),
        "-m",
        &format!("{}M", RAM_BYTES / MIB),
    ]);
    command.args(["-serial", &format!("file:{}", console.display())]);
    command
}

/// The machine.
fn command(args: &Args, guest: &Guest, console: &Path, round: u32, seed: u64) -> Command {
    let mut command = base(guest.accelerator, args.cpus, console);
    let ram = guest.ram.display();
    let bytes = RAM_BYTES;
    let ram = format!("memory-backend-file,id=ram,share=on,mem-path={ram},size={bytes}");
    command.args(["-object", &ram, "-machine", "q35,memory-backend=ram"]);
    command
        .arg("-kernel")
        .arg(&guest.kernel)
        .arg("-initrd")
        .arg(&guest.initramfs);
    command.args(["-append", &kernel_line(args, round, seed)]);
    if args.medium == MachineMedium::File {
        // The host survives, so it need not sync: what the guest has written is kept in either
        // case. What is lost is what the guest has not written.
        let disk = format!(
            "file={},format=raw,if=none,id=disk,cache=unsafe",
            guest.disk.display()
        );
        command.args(["-drive", &disk, "-device", "virtio-blk-pci,drive=disk"]);
    }
    command
}

impl VirtualMachine {
    /// Switches it on. The channel is empty.
    pub(super) fn start(
        args: &Args,
        guest: &Guest,
        round: u32,
        seed: u64,
    ) -> Result<Self, Failure> {
        let memory = File::options().read(true).write(true).open(&guest.ram);
        let memory = memory.map_err(Failure::io("open", &guest.ram))?;
        let zeros = vec![0; CHANNEL_BYTES as usize];
        memory
            .write_all_at(&zeros, CHANNEL_AT)
            .map_err(Failure::io("write", &guest.ram))?;
        let console = guest.folder.join("console");
        let mut command = command(args, guest, &console, round, seed);
        // What an earlier boot said is not taken for this one's.
        std::fs::write(&console, "").map_err(Failure::io("empty", &console))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(Failure::io("start", Path::new(QEMU)))?;
        Ok(Self {
            child,
            memory,
            console,
        })
    }

    fn is_there(&self, offset: u64) -> bool {
        let mut byte = [0; 64];
        let read = self.memory.read_exact_at(&mut byte, CHANNEL_AT + offset);
        read.is_ok() && byte.iter().any(|byte| *byte != 0)
    }

    /// Whether the pool is being opened.
    pub(super) fn is_opening(&self) -> bool {
        std::fs::read_to_string(&self.console).is_ok_and(|said| said.contains("guest: opening"))
    }

    /// Whether the writer writes.
    pub(super) fn is_writing(&self) -> bool {
        self.is_there(RECORDS_AT)
    }

    /// Waits until something is so, or the guest has ended by itself. Whether it is so.
    pub(super) fn wait_for(&mut self, is_so: fn(&Self) -> bool) -> Result<bool, Failure> {
        let start = Instant::now();
        while !is_so(self) {
            if self
                .child
                .try_wait()
                .map_err(Failure::io("wait for", Path::new(QEMU)))?
                .is_some()
            {
                return Ok(is_so(self));
            }
            if start.elapsed() > BOOT_WAIT_MAX {
                let what = format!("did not get there within {} s", BOOT_WAIT_MAX.as_secs());
                return Err(Failure::Guest {
                    what,
                    console: self.console.clone(),
                    end: self.console_end(),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    /// Cuts the power.
    pub(super) fn cut(mut self) -> Result<Left, Failure> {
        let qemu = Path::new(QEMU);
        self.child.kill().map_err(Failure::io("kill", qemu))?;
        let status = self.child.wait().map_err(Failure::io("wait for", qemu))?;
        let mut channel = vec![0; CHANNEL_BYTES as usize];
        self.memory
            .read_exact_at(&mut channel, CHANNEL_AT)
            .map_err(Failure::io("read", qemu))?;
        let used = channel
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        channel.truncate(used.max(RECORDS_AT as usize));
        let ended = (status.signal() != Some(9)).then(|| self.console_end());
        Ok(Left { channel, ended })
    }

    /// What the guest said last.
    fn console_end(&self) -> String {
        let said = std::fs::read(&self.console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        // A failure here cannot be reported any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests;
