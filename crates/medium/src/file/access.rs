//! Permissions of logs and copies: they hold the same keys and values as their pool.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

/// The mode with which a file for a pool is created. Then [`share_access`] widens it, so other
/// users cannot read the file at any moment unless they may read the pool.
pub const PRIVATE_MODE: u32 = 0o600;
const GROUP: u32 = 0o070;
const ALL: u32 = 0o777;

/// Gives `file` the owner, the group and the permissions of `pool`, as far as this process may:
/// only root gives files away. A group other than the pool's gets no permissions.
///
/// # Errors
/// If permissions cannot be changed: the file is another user's, or its file system has none.
pub fn share_access(file: &File, pool: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (pool.uid(), pool.gid()) {
        // If this is refused, the mode below is narrower.
        let _ = fchown(file, Some(pool.uid()), Some(pool.gid()))
            .or_else(|_| fchown(file, None, Some(pool.gid())));
    }
    let own = file.metadata()?;
    let withheld = if own.gid() == pool.gid() { 0 } else { GROUP };
    let mode = pool.mode() & ALL & !withheld;
    if own.mode() & ALL == mode {
        Ok(())
    } else {
        file.set_permissions(Permissions::from_mode(mode))
    }
}
