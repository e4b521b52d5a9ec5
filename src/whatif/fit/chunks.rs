//! Data that is split into chunks, of which the last one takes what is left.

/// The data is split: `(scale * size + offset) / chunk` repetitions, counted from the last one of the base recording, of
/// which the last is a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    scale: i64,
    offset: i64,
    chunk: i64,
}

/// A larger ratio of data to size is unlikely.
const MAX_CHUNK: i64 = 1 << 20;

/// Repetitions that differ from the others, at most.
const MAX_IRREGULAR: i64 = 4;

impl Chunks {
    /// `points` have the size of each recording, its repetitions more than those of the base recording, and the bytes
    /// of a request in its last repetition; `full_bytes` are those in all others. The base recording comes first and
    /// has `repetitions` or a few more. `None` if the total is not in proportion to the size, or every last repetition
    /// is as large as the others.
    pub(super) fn fit(full_bytes: u64, repetitions: i64, points: &[(u64, i64, u64)]) -> Option<Self> {
        let full = i128::from(full_bytes);
        let total =
            |(size, more, last): &(u64, i64, u64)| (i128::from(*size), i128::from(*more) * full + i128::from(*last));
        let is_part = |(_, _, last): &(u64, i64, u64)| *last > 0 && *last <= full_bytes;
        // Such a request depends on the size itself.
        let (first_size, _, first_last) = *points.first()?;
        let is_in_proportion = |(size, _, last): &(u64, i64, u64)| {
            u128::from(*last) * u128::from(first_size) == u128::from(first_last) * u128::from(*size)
        };
        let ((size, base), (other_size, other)) = (total(points.first()?), total(points.get(1)?));
        let (run, rise) = (size - other_size, base - other);
        let is_on_line = |point| {
            let (at, bytes) = total(point);
            (bytes - base) * run == (at - size) * rise
        };
        // If all end with equal parts, the last repetition differs for another reason.
        if points.iter().all(|(_, _, last)| *last == points[0].2)
            || points.iter().all(is_in_proportion)
            || !points.iter().all(is_part)
            || run * rise <= 0
            || !points.iter().all(is_on_line)
        {
            return None;
        }
        // All bytes of the base recording, without its last repetition, are those of full repetitions.
        let before_last = rise * size - i128::from(first_last) * run;
        let count = before_last / (full * run) + 1;
        let is_count = before_last % (full * run) == 0;
        if !is_count || !(repetitions..=repetitions + MAX_IRREGULAR).contains(&i64::try_from(count).ok()?) {
            return None;
        }
        // bytes = (rise * size + offset) / run
        let (scale, offset, chunk) = (rise * run.signum(), (base * run - rise * size) * run.signum(), full * run.abs());
        let common = [scale, offset].into_iter().fold(chunk, |common, number| {
            let (mut a, mut b) = (common, number.abs());
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        });
        let [scale, offset, chunk] = [scale, offset, chunk].map(|number| i64::try_from(number / common).ok());
        let (scale, offset, chunk) = (scale?, offset?, chunk?);
        (chunk <= MAX_CHUNK && scale <= MAX_CHUNK).then_some(Self { scale, offset, chunk })
    }

    /// The chunks at `size` more than in the base recording.
    pub(super) fn more_at(self, size: i64) -> Option<i64> {
        Some((self.total(size)? - 1).div_euclid(self.chunk))
    }

    /// Chunks, and the units of the size that they take.
    pub(super) fn rate(self) -> [u64; 2] {
        [self.scale, self.chunk].map(i64::unsigned_abs)
    }

    fn total(self, size: i64) -> Option<i64> {
        size.checked_mul(self.scale)?.checked_add(self.offset)
    }

    /// The last repetition at `size` as a part of a whole one: numerator and denominator.
    pub(super) fn last_part(self, size: u64) -> [u64; 2] {
        let total = i64::try_from(size).ok().and_then(|size| self.total(size)).unwrap_or(self.chunk);
        [(total - 1).rem_euclid(self.chunk) + 1, self.chunk].map(i64::unsigned_abs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of 32 rows of 6 rows for each unit, of 100 bytes: 198 rows at 33, which are 6 chunks and 6 rows.
    #[test]
    fn the_last_chunk_takes_what_is_left() {
        let chunks = Chunks::fit(3200, 6, &[(33, 0, 600), (12, -4, 800), (20, -3, 2400)]).unwrap();
        assert_eq!([33, 37, 38, 48].map(|size| chunks.more_at(size)), [0, 0, 1, 2].map(Some));
        assert_eq!([33, 48].map(|size| chunks.last_part(size)), [[3, 16], [16, 16]]);
        assert_eq!(Chunks::fit(3200, 6, &[(33, 0, 600), (12, -4, 800), (20, -3, 2401)]), None);
        assert_eq!(Chunks::fit(3200, 6, &[(32, 0, 3200), (16, -3, 3200)]), None);
        // A request that grows with the size, and repetitions that do not add up.
        assert_eq!(Chunks::fit(3200, 32, &[(32, 0, 320), (16, -16, 160)]), None);
        assert_eq!(Chunks::fit(3200, 20, &[(33, 0, 600), (12, -4, 800), (20, -3, 2400)]), None);
    }
}
