//! Keys, and their distributions.

/// `count` distinct keys in random order, without a table: a bijection of words of up to 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    count: u64,
    salt: u64,
    ordered: bool,
    /// The number of upper bits in which keys differ; the other bits are 0.
    bits: u32,
}

impl Keys {
    /// The numbers from 0 on.
    pub(crate) fn ordered(count: u64) -> Self {
        Self {
            count,
            salt: 0,
            ordered: true,
            bits: u64::BITS,
        }
    }

    pub(crate) fn new(count: u64, seed: u64) -> Self {
        Self {
            count,
            salt: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ordered: false,
            bits: u64::BITS,
        }
    }

    /// The same number of keys with only `bytes` bytes; `None` if keys that short cannot all be
    /// distinct.
    pub(crate) fn of_bytes(self, bytes: usize) -> Option<Self> {
        self.of_bits(8 * bytes.min(size_of::<u64>()) as u32)
    }

    /// The same number of keys that differ in only `bits` bits; `None` if they cannot all be
    /// distinct.
    pub(crate) fn of_bits(self, bits: u32) -> Option<Self> {
        (u128::from(self.count) <= 1 << bits).then_some(self.with_bits(bits))
    }

    /// Keys that differ in only `bits` bits. Those of numbers below two to the power of `bits` are
    /// distinct.
    pub(crate) fn with_bits(self, bits: u32) -> Self {
        Self { bits, ..self }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The key of number `index`: each step of the mix can be undone, so different numbers have
    /// different keys.
    pub(crate) fn key(&self, index: u64) -> u64 {
        let unused = u64::BITS - self.bits;
        if self.ordered {
            return index << unused;
        }
        let mask = u64::MAX >> unused;
        let half = self.bits / 2;
        let mut word = index
            .wrapping_add(self.salt)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            & mask;
        word ^= word >> half;
        word = word.wrapping_mul(0xd6e8_feb8_6659_fd93) & mask;
        (word ^ word >> half) << unused
    }
}

/// A small generator (xorshift64*), one for each thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Zipfian ranks as YCSB draws them (Gray et al., SIGMOD 1994), with the zeta sum's tail as an
/// integral, so that it starts at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipfian {
    count: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

/// Terms of the zeta sum that are added one by one.
const ZETA_TERMS: u64 = 10_000;

impl Zipfian {
    pub(crate) fn new(count: u64, theta: f64) -> Self {
        let exact = count.min(ZETA_TERMS);
        let mut zeta: f64 = (1..=exact).map(|rank| (rank as f64).powf(-theta)).sum();
        let power = |x: f64| x.powf(1.0 - theta) / (1.0 - theta);
        zeta += power(count as f64 + 0.5) - power(exact as f64 + 0.5);
        let zeta_of_two = 1.0 + 0.5_f64.powf(theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta);
        Self {
            count,
            theta,
            zeta,
            eta,
        }
    }

    /// A rank from 0, the most frequent, to `count - 1`.
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        let fraction = random.fraction();
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let spread = (self.eta * fraction - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        ((self.count as f64 * spread) as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests;
