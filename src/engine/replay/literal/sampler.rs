//! Downsamples series over the whole trace to a fixed number of buckets, keeping the extremes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket<const N: usize, T = u64> {
    /// The first entry in the bucket.
    pub first: usize,
    /// Minimum of each series.
    pub min: [T; N],
    /// Maximum of each series.
    pub max: [T; N],
}

/// The maximum of one series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeriesPeak<T = u64> {
    pub value: T,
    /// Index of the first sample that reached it.
    pub sample: usize,
}

/// Collects `N` series into buckets of equal width.
#[derive(Debug, Clone)]
pub struct Sampler<const N: usize, T = u64> {
    width: usize,
    next_bucket_start: usize,
    buckets: Vec<Bucket<N, T>>,
    samples: usize,
    peaks: [SeriesPeak<T>; N],
    last: [T; N],
}

impl<const N: usize, T: Copy + Default + PartialOrd> Sampler<N, T> {
    /// At most `limit` buckets for a trace of `len` entries.
    pub fn new(len: usize, limit: usize) -> Self {
        let width = len.div_ceil(limit.max(1)).max(1);
        Self {
            width,
            next_bucket_start: 0,
            buckets: Vec::with_capacity(len.div_ceil(width)),
            samples: 0,
            peaks: [SeriesPeak::default(); N],
            last: [T::default(); N],
        }
    }

    /// Adds the values after entry `index`, which must not decrease. True if they start a bucket.
    #[inline]
    pub fn add(&mut self, index: usize, values: [T; N]) -> bool {
        for (series, value) in values.into_iter().enumerate() {
            if value > self.peaks[series].value {
                self.peaks[series] = SeriesPeak { value, sample: self.samples };
            }
        }
        self.samples += 1;
        self.last = values;
        match self.buckets.last_mut() {
            Some(bucket) if index < self.next_bucket_start => {
                for (series, value) in values.into_iter().enumerate() {
                    if value < bucket.min[series] {
                        bucket.min[series] = value;
                    }
                    if value > bucket.max[series] {
                        bucket.max[series] = value;
                    }
                }
                false
            }
            _ => {
                self.next_bucket_start = (index / self.width + 1) * self.width;
                self.buckets.push(Bucket { first: index, min: values, max: values });
                true
            }
        }
    }

    /// Adds the last values again, for entry `index`. False, and nothing is added, if that would start a bucket.
    #[inline]
    pub fn repeat(&mut self, index: usize) -> bool {
        let is_in_bucket = index < self.next_bucket_start;
        self.samples += usize::from(is_in_bucket);
        is_in_bucket
    }

    pub fn buckets(&self) -> &[Bucket<N, T>] {
        &self.buckets
    }

    /// The bucket of entry `index`.
    pub fn bucket_index(&self, index: usize) -> usize {
        index / self.width
    }

    /// The peak of each series; 0 at the first sample if no value is above 0.
    pub fn peaks(&self) -> [SeriesPeak<T>; N] {
        self.peaks
    }

    /// The values of the last sample.
    pub fn last(&self) -> [T; N] {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_spikes() {
        let mut sampler = Sampler::<1>::new(1000, 10);
        for i in 0..1000 {
            sampler.add(i, [if i == 555 || i == 777 { 99 } else { 1 }]);
        }
        assert_eq!(sampler.buckets().len(), 10);
        assert_eq!(sampler.buckets()[5], Bucket { first: 500, min: [1], max: [99] });
        assert_eq!(sampler.buckets()[4].max, [1]);
        assert_eq!(sampler.bucket_index(555), 5);
        assert_eq!(sampler.peaks(), [SeriesPeak { value: 99, sample: 555 }]);
        assert_eq!(sampler.last(), [1]);
    }
}
