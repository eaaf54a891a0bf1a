//! Statistics over the runs of a measurement.

/// The middle of some figures, or the mean of the two in the middle; NaN if there are none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(upper) = sorted.get(sorted.len() / 2) else {
        return f64::NAN;
    };
    let lower = sorted[(sorted.len() - 1) / 2];
    f64::midpoint(lower, *upper)
}

/// How many times the highest of some figures is the lowest; 1 if one of them is not above 0.
pub fn spread(figures: &[f64]) -> f64 {
    let low = figures.iter().copied().fold(f64::MAX, f64::min);
    let high = figures.iter().copied().fold(0.0, f64::max);
    if low > 0.0 && high > 0.0 {
        high / low
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests;
