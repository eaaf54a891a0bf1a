//! Archives that a kernel unpacks into its first file system: the format "newc" of cpio, as the
//! kernel's Documentation/driver-api/early-userspace/buffer-format.rst has it.

/// An archive in the making. Folders come before what lies in them.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        // inode, mode, user, group, links, time, length, device, device of a node, length of the
        // name, checksum
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        fields.iter().for_each(|field| {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        });
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, (0, 0), &[]);
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, EXECUTABLE, (0, 0), content);
    }

    /// The device that the kernel opens for the first process.
    pub(super) fn console(&mut self) {
        self.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests;
