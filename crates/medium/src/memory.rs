//! How much memory there is.

use std::fs;
use std::path::Path;

/// The memory of the machine, or the limit of the control groups of this process (of version 1 or
/// 2) if that is lower. `u64::MAX` if the system does not tell.
pub fn memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| of_machine(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_groups(&groups, Path::new("/sys/fs/cgroup"))
        .into_iter()
        .chain(machine)
        .min()
        .unwrap_or(u64::MAX)
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The limits of the groups that `groups`, a text of the system, names, and of the groups around
/// them. Their folders lie beneath `root`.
fn of_groups(groups: &str, root: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        // Number, controllers, path. The one hierarchy of version 2 has no controllers here.
        let mut parts = line.splitn(3, ':').skip(1);
        let Some(controllers) = parts.next() else {
            continue;
        };
        let Some(path) = parts.next() else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the path is often the one outside of it, and only the root is there.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let limit = fs::read_to_string(root.join(group).join(file));
            limits.extend(
                limit
                    .ok()
                    .and_then(|limit| limit.trim().parse::<u64>().ok()),
            );
        }
    }
    limits
}

#[cfg(test)]
mod tests;
