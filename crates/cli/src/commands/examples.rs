//! Examples at the end of the help of each command.

pub(super) const DEMO: &str = "\
Examples:
  everleaf demo
  everleaf demo --root /usr/share";

pub(super) const LOAD: &str = "\
Examples:
  everleaf load prices.pool lines.txt
  printf 'apple\\t12\\n' | everleaf load prices.pool
  everleaf load users.pool users.csv --format csv --key-column id --value-column name \\
      --key-type u64 --value-type text
  everleaf load users.pool users.csv --format csv --key-column country --key-column id \\
      --value-column name --key-type text,u64 --value-type text
  everleaf scan prices.pool | everleaf load copy.pool --escaped";

pub(super) const APPLY: &str = "\
Examples:
  printf 'expect\\tmain\\tapple\\t12\\nput\\tmain\\tapple\\t11\\n' | everleaf apply prices.pool
  everleaf apply prices.pool script.txt";

pub(super) const GET: &str = "\
Examples:
  everleaf get prices.pool apple
  everleaf get prices.pool apple --json
  everleaf get users.pool 17 --key-type u64
  everleaf get images.pool logo --raw";

pub(super) const PUT: &str = "\
Examples:
  everleaf put prices.pool apple 12
  everleaf put images.pool logo --value-file logo.png
  everleaf put users.pool 17 ada --key-type u64 --value-type text --tree users
  everleaf put readings.pool roof,-3 1.5 --key-type text,i32 --value-type f64";

pub(super) const INSERT: &str = "\
Examples:
  everleaf insert prices.pool apple 12
  everleaf insert users.pool 17 ada --key-type u64 --value-type text";

pub(super) const RM: &str = "\
Examples:
  everleaf rm prices.pool apple
  everleaf rm prices.pool --prefix ap
  everleaf rm users.pool --from 100 --to 200 --key-type u64
  everleaf rm prices.pool --all";

pub(super) const DROP: &str = "\
Examples:
  everleaf drop prices.pool old";

pub(super) const RENAME: &str = "\
Examples:
  everleaf rename prices.pool old new";

pub(super) const ADOPT: &str = "\
Examples:
  everleaf adopt users.pool --tree users --key-type u64 --value-type text
  everleaf adopt users.pool --tree users --bytes";

pub(super) const SCAN: &str = "\
Examples:
  everleaf scan prices.pool
  everleaf scan prices.pool --prefix ap --json
  everleaf scan prices.pool --from apple --to banana --reverse --limit 10
  everleaf scan readings.pool --prefix roof --key-type text,i32 --value-type f64";

pub(super) const SHELL: &str = "\
Examples:
  everleaf shell prices.pool
  everleaf shell users.pool --tree users --key-type u64 --value-type text
  printf 'begin\\nput apple 11\\nput pear 4\\ncommit\\n' | everleaf shell prices.pool --json";

pub(super) const ENGINES: &str = "\
Examples:
  everleaf engines";

pub(super) const TREES: &str = "\
Examples:
  everleaf trees prices.pool";

pub(super) const STAT: &str = "\
Examples:
  everleaf stat prices.pool";

pub(super) const CHECK: &str = "\
Examples:
  everleaf check prices.pool
  everleaf check prices.pool --repair";

pub(super) const BACKUP: &str = "\
Examples:
  everleaf backup prices.pool copy.pool";

pub(super) const COMPACT: &str = "\
Examples:
  everleaf compact prices.pool";

pub(super) const DUMP: &str = "\
Examples:
  everleaf dump prices.pool prices.dump
  everleaf dump damaged.pool saved.dump --salvage";

pub(super) const RESTORE: &str = "\
Examples:
  everleaf restore new.pool prices.dump
  everleaf dump prices.pool | everleaf restore new.pool --engine bztree";

pub(super) const COMPLETIONS: &str = "\
Examples:
  everleaf completions bash
  everleaf completions fish";
