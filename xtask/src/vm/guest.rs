//! What the machine boots: a kernel, a first file system with our command in it, and images with
//! empty file systems.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cpio::Archive;
use super::failure::{Failure, output};
use super::machine::{self, Accelerator, DISK_BYTES, POOL_AT, POOL_BYTES, RAM_BYTES};
use super::modules::Modules;
use super::packages::Packages;
use super::{Args, FileSystem, MachineMedium};

/// The platform of the guest.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The first process.
const INIT: &str = include_str!("init.sh");

/// Files that a machine is made of.
pub(super) struct Guest {
    pub(super) accelerator: Accelerator,
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    /// The guest's memory.
    pub(super) ram: PathBuf,
    /// The disk, for the medium `file`.
    pub(super) disk: PathBuf,
    /// Where all of this run lies.
    pub(super) folder: PathBuf,
    /// The command, which runs here as well.
    pub(super) command: PathBuf,
}

impl Guest {
    /// Finds or makes all of it; the images are new.
    pub(super) fn prepare(args: &Args) -> Result<Self, Failure> {
        machine::find()?;
        let target = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"));
        let packages = Packages::new(target.join("vm/packages"))?;
        let kernel = packages.unpacked(&args.kernel)?;
        let busybox = packages.unpacked("busybox-static")?;
        let command = build(target)?;
        let folder = target.join(format!("vm/{}-{}", args.medium.name(), args.fs.name()));
        std::fs::create_dir_all(&folder).map_err(Failure::io("make", &folder))?;
        let image = only_file(&kernel.join("boot"), "vmlinuz-")?;
        let guest = Self {
            accelerator: Accelerator::detect(&image, &folder.join("console"))?,
            kernel: image,
            initramfs: folder.join("initramfs"),
            ram: folder.join("ram"),
            disk: folder.join("disk"),
            folder,
            command,
        };
        let modules = Modules::read(&only_file(&kernel.join("lib/modules"), "")?)?;
        let modules = modules.load(&wanted(args), &args.kernel)?;
        let initramfs = initramfs(&modules, &busybox.join("bin/busybox"), &guest.command)?;
        std::fs::write(&guest.initramfs, initramfs)
            .map_err(Failure::io("write", &guest.initramfs))?;
        make_image(&guest.ram, RAM_BYTES)?;
        if args.medium == MachineMedium::File {
            make_image(&guest.disk, DISK_BYTES)?;
            format(args.fs, &guest.disk)?;
        } else {
            let image = guest.folder.join("pool");
            make_image(&image, POOL_BYTES)?;
            format(args.fs, &image)?;
            let copied = copy_into(&image, &guest.ram, POOL_AT);
            copied
                .and_then(|()| std::fs::remove_file(&image))
                .map_err(Failure::io("copy", &image))?;
        }
        Ok(guest)
    }
}

/// The modules that a guest needs.
fn wanted(args: &Args) -> Vec<&'static str> {
    let mut wanted = vec!["nd_pmem", "nd_e820"];
    if args.medium == MachineMedium::File {
        wanted.extend(["virtio_pci", "virtio_blk"]);
    }
    // The checksums of the file systems ask for it by another name.
    wanted.push("crc32c_generic");
    wanted.push(args.fs.name());
    wanted
}

/// The file in a folder whose name begins so.
fn only_file(folder: &Path, prefix: &str) -> Result<PathBuf, Failure> {
    let files = std::fs::read_dir(folder).map_err(Failure::io("read", folder))?;
    let mut paths = files.filter_map(Result::ok).filter_map(|file| {
        file.file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(prefix))
            .then(|| file.path())
    });
    paths
        .next()
        .ok_or_else(|| Failure::io("find a kernel in", folder)(std::io::ErrorKind::NotFound.into()))
}

/// Our command, as a program that needs no libraries.
fn build(target: &Path) -> Result<PathBuf, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "everleaf-workbench",
        "--target",
        TARGET,
    ]);
    command.args([
        "--config",
        &format!("target.{TARGET}.rustflags=['-Ctarget-feature=+crt-static']"),
    ]);
    command
        .arg("--target-dir")
        .arg(target)
        .current_dir(target.join(".."))
        .stderr(Stdio::inherit());
    output(&mut command, "cargo")?;
    Ok(target.join(TARGET).join("release/everleaf-workbench"))
}

fn initramfs(
    modules: &[(String, Vec<u8>)],
    busybox: &Path,
    command: &Path,
) -> Result<Vec<u8>, Failure> {
    let read = |path: &Path| std::fs::read(path).map_err(Failure::io("read", path));
    let mut archive = Archive::default();
    ["bin", "dev", "proc", "sys", "pool", "modules"]
        .iter()
        .for_each(|folder| archive.folder(folder));
    archive.console();
    archive.file("init", INIT.as_bytes());
    archive.file("bin/busybox", &read(busybox)?);
    archive.file("bin/everleaf-workbench", &read(command)?);
    for (index, (name, content)) in modules.iter().enumerate() {
        archive.file(&format!("modules/{index:02}-{name}.ko"), content);
    }
    Ok(archive.finish())
}

fn make_image(path: &Path, bytes: u64) -> Result<(), Failure> {
    File::create(path)
        .and_then(|file| file.set_len(bytes))
        .map_err(Failure::io("make", path))
}

/// Makes an empty file system in an image. Blocks have the size of pages, as DAX wants them.
fn format(fs: FileSystem, image: &Path) -> Result<(), Failure> {
    let (mut command, package) = match fs {
        FileSystem::Ext4 => {
            let mut command = Command::new("/sbin/mke2fs");
            command.args(["-q", "-F", "-t", "ext4", "-b", "4096"]);
            (command, "e2fsprogs")
        }
        FileSystem::Xfs => {
            let mut command = Command::new("/sbin/mkfs.xfs");
            // Kernels before 5.18 map no file with DAX that may share its blocks.
            command.args(["-q", "-f", "-m", "reflink=0"]);
            (command, "xfsprogs")
        }
    };
    output(command.arg(image), package).map(|_| ())
}

/// Copies an image into a part of another one. Parts that are zeros are left out.
fn copy_into(image: &Path, target: &Path, at: u64) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let image = File::open(image)?;
    let target = File::options().write(true).open(target)?;
    let length = image.metadata()?.len();
    let mut part = vec![0; 1 << 20];
    for offset in (0..length).step_by(part.len()) {
        let bytes = (length - offset).min(part.len() as u64) as usize;
        image.read_exact_at(&mut part[..bytes], offset)?;
        if part[..bytes].iter().any(|byte| *byte != 0) {
            target.write_all_at(&part[..bytes], at + offset)?;
        }
    }
    Ok(())
}
