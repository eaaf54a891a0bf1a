//! Examples at the end of the help of each subcommand.

pub(super) const TORTURE: &str = "\
Examples:
  everleaf torture torture.pool --rounds 50
  everleaf torture torture.pool --batches --rounds 20
  everleaf torture torture.pool --key-shape prefix";

pub(super) const CRASH: &str = "\
Examples:
  everleaf crash --engine rntree --exhaustive --length 2
  everleaf crash --engine bztree --ops 20 --seed 7";

pub(super) const BENCH: &str = "\
Examples:
  everleaf bench
  everleaf bench --workload a --threads 2
  everleaf bench --key-shape prefix --value-size 150
  everleaf bench --medium dax --engine masstree --workload insert --count";

pub(super) const LAB: &str = "\
Examples:
  everleaf lab bztree --figure 7
  everleaf lab incll --figure 2 --plot figure.svg";

pub(super) const ENGINES: &str = "\
Examples:
  everleaf-workbench engines --all";

pub(super) const COMPLETIONS: &str = "\
Examples:
  everleaf-workbench completions bash";
