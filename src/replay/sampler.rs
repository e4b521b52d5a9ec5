//! A series over the whole trace in a fixed number of buckets, extremes kept.

/// The values of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket<const N: usize> {
    /// Index of the first entry in it.
    pub first: usize,
    /// Smallest value of each series.
    pub min: [u64; N],
    /// Largest value of each series.
    pub max: [u64; N],
}

/// Gathers `N` series, sample by sample, into at most `limit` buckets of equal width.
#[derive(Debug, Clone)]
pub struct Sampler<const N: usize> {
    width: usize,
    /// Where the next bucket begins.
    next: usize,
    buckets: Vec<Bucket<N>>,
}

impl<const N: usize> Sampler<N> {
    /// For a trace of `len` entries.
    pub fn new(len: usize, limit: usize) -> Self {
        let width = len.div_ceil(limit.max(1)).max(1);
        Self { width, next: 0, buckets: Vec::with_capacity(len.div_ceil(width)) }
    }

    /// Adds the values after entry `index`; indices must not fall.
    #[inline]
    pub fn add(&mut self, index: usize, values: [u64; N]) {
        match self.buckets.last_mut() {
            Some(bucket) if index < self.next => {
                for ((min, max), value) in bucket.min.iter_mut().zip(&mut bucket.max).zip(values) {
                    *min = value.min(*min);
                    *max = value.max(*max);
                }
            }
            _ => {
                self.next = (index / self.width + 1) * self.width;
                self.buckets.push(Bucket { first: index, min: values, max: values });
            }
        }
    }

    /// The buckets, in order.
    pub fn buckets(&self) -> &[Bucket<N>] {
        &self.buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spikes_survive() {
        let mut sampler = Sampler::<1>::new(1000, 10);
        for i in 0..1000 {
            sampler.add(i, [if i == 555 { 99 } else { 1 }]);
        }
        assert_eq!(sampler.buckets().len(), 10);
        assert_eq!(sampler.buckets()[5], Bucket { first: 500, min: [1], max: [99] });
        assert_eq!(sampler.buckets()[4].max, [1]);
    }
}
