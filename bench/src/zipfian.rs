//! Ranks of which the first ones are drawn far more often than the others.

/// Zipfian ranks as YCSB draws them (Gray et al., SIGMOD 1994): rank r, from 1 on, has a
/// probability in proportion to `r^-theta`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotRanks {
    count: u64,
    theta: f64,
    /// The sum of `r^-theta` over all ranks.
    zeta: f64,
    eta: f64,
}

impl HotRanks {
    /// For at least two ranks, and `theta` between 0 and 1. O(count).
    pub(crate) fn new(count: u64, theta: f64) -> Self {
        let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
        let zeta_of_two = 1.0 + 0.5_f64.powf(theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta);
        Self {
            count,
            theta,
            zeta,
            eta,
        }
    }

    /// The rank, counted from 0, for a number that is uniform from 0 to 1.
    pub(crate) fn rank(&self, fraction: f64) -> u64 {
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let base = self.eta * fraction - self.eta + 1.0;
        let rank = self.count as f64 * base.powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests;
