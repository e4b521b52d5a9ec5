//! How the shape of a tensor grows with the size.
//!
//! Bytes at two sizes do not show whether a tensor is `[n + 1, n + 1]` or `[3 * n, n / 2 + 7]`. Its shape at both does:
//! each of its dimensions is a simple function of the size, and their product is exact at every size.

use super::polynomial::Point;

/// Dimensions that change with the size, at most.
const MAX_GROWING: usize = 4;
/// A larger constant is less likely than another power.
const MAX_OFFSET: i64 = 16;
/// Bytes of an element, at most: those of `complex128`.
const MAX_ITEM_BYTES: u64 = 16;
/// A dimension is a multiple of one of these powers of the size, simplest first.
const POWERS: [u32; 2] = [1, 2];

/// The bytes of a tensor as the product of its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShapeLaw {
    /// The bytes of an element, times the dimensions that do not change.
    scale: u64,
    growing: [Option<Dimension>; MAX_GROWING],
}

/// A dimension: `numerator * size ^ exponent / denominator + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dimension {
    exponent: u32,
    numerator: u64,
    denominator: u64,
    offset: i64,
}

impl ShapeLaw {
    /// The law of a tensor with the bytes of `points` and these shapes at the same sizes; `None` if a dimension is no
    /// simple function of the size.
    pub(super) fn fit(points: &[Point], shapes: &[&[u64]]) -> Option<Self> {
        let (first, rank) = (*points.first()?, shapes.first()?.len());
        let items = |shape: &[u64]| shape.iter().try_fold(1u64, |product, dimension| product.checked_mul(*dimension));
        let item_bytes = first.1.checked_div(items(shapes[0])?)?;
        let is_whole = |(point, shape): (&Point, &&[u64])| {
            shape.len() == rank && items(shape).and_then(|items| items.checked_mul(item_bytes)) == Some(point.1)
        };
        if points.len() != shapes.len()
            || !(1..=MAX_ITEM_BYTES).contains(&item_bytes)
            || !points.iter().zip(shapes).all(is_whole)
        {
            return None;
        }
        let (mut scale, mut growing) = (item_bytes, Vec::new());
        for dimension in 0..rank {
            let values: Vec<Point> =
                points.iter().zip(shapes).map(|((size, _), shape)| (*size, shape[dimension])).collect();
            if values.iter().all(|(_, value)| *value == values[0].1) {
                scale = scale.checked_mul(values[0].1)?;
            } else {
                growing.push(Some(Dimension::fit(&values)?));
            }
        }
        growing.resize(growing.len().max(MAX_GROWING), None);
        Some(Self { scale, growing: growing.try_into().ok()? })
    }

    /// The law of bytes in exact proportion to `dimension` to the `power`, and to the size `factors` times.
    pub(super) fn with_dimension(points: &[Point], dimension: Dimension, power: usize, factors: usize) -> Option<Self> {
        let own = Dimension { exponent: 1, numerator: 1, denominator: 1, offset: 0 };
        let growing = std::iter::repeat_n(dimension, power).chain(std::iter::repeat_n(own, factors));
        let mut growing: Vec<Option<Dimension>> = growing.map(Some).collect();
        growing.resize(growing.len().max(MAX_GROWING), None);
        let unit = Self { scale: 1, growing: growing.try_into().ok()? };
        let (size, bytes) = points.first()?;
        let law = Self { scale: bytes.checked_div(unit.bytes_at(*size))?, ..unit };
        points.iter().all(|(size, bytes)| law.bytes_at(*size) == *bytes).then_some(law)
    }

    pub(super) fn bytes_at(&self, size: u64) -> u64 {
        let growing = self.growing.iter().flatten();
        growing.fold(self.scale, |bytes, dimension| bytes.saturating_mul(dimension.value_at(size)))
    }

    /// The power of the size in the bytes, and whether there are lower ones as well.
    pub(super) fn degree(&self) -> (u32, bool) {
        let growing = || self.growing.iter().flatten();
        let degree = growing().map(|dimension| dimension.exponent).sum();
        (degree, growing().any(|dimension| dimension.offset != 0))
    }
}

impl Dimension {
    /// The simplest function through all points.
    fn fit(points: &[Point]) -> Option<Self> {
        let candidates = POWERS.iter().filter_map(|exponent| Self::through(*exponent, points));
        let candidates: Vec<Self> = candidates.collect();
        let find =
            |is_simple: &dyn Fn(&Self) -> bool| candidates.iter().copied().find(|dimension| is_simple(dimension));
        find(&|dimension| dimension.offset == 0)
            .or_else(|| find(&|dimension| dimension.offset.abs() <= MAX_OFFSET))
            .or_else(|| find(&|dimension| dimension.offset > 0 && dimension.denominator == 1))
    }

    /// A power of the size, plus an offset that is a fraction, as a whole number at all `numbers`, the values of
    /// that power. `None` if the offset is 0 or unlikely.
    pub(super) fn with_rational_offset(degree: u32, fraction: [i128; 2], numbers: &[u64]) -> Option<Self> {
        let [above, below] = fraction.map(|part| u64::try_from(part.unsigned_abs()).ok());
        let (above, below) = (above?, below?);
        let common = greatest_common_divisor(above, below);
        let (above, below) = (above.checked_div(common)?, below.checked_div(common)?);
        // With patches of 16 x 16, the square of an image's side plus 256 is 256 times the number of tokens.
        let divides = |part: &u64| numbers.iter().all(|number| number.is_multiple_of(*part));
        let patch = if below == 1 { Some(above).filter(|above| *above > 0).filter(divides).unwrap_or(1) } else { 1 };
        let offset = i64::try_from(above / patch).ok().filter(|offset| (1..=MAX_OFFSET).contains(offset))?;
        let is_negative = (fraction[0] < 0) != (fraction[1] < 0);
        Some(Self {
            exponent: degree,
            numerator: below,
            denominator: patch,
            offset: if is_negative { -offset } else { offset },
        })
    }

    fn through(exponent: u32, points: &[Point]) -> Option<Self> {
        let power = |point: &Point| point.0.saturating_pow(exponent);
        let (low, high) = (points.iter().min_by_key(|point| power(point))?, points.iter().max_by_key(|p| power(p))?);
        let rise = high.1.checked_sub(low.1).filter(|rise| *rise > 0)?;
        let run = power(high).checked_sub(power(low)).filter(|run| *run > 0)?;
        let common = greatest_common_divisor(rise, run);
        let (numerator, denominator) = (rise / common, run / common);
        let part = power(low).checked_mul(numerator)? / denominator;
        let offset = i64::try_from(low.1).ok()?.checked_sub(i64::try_from(part).ok()?)?;
        let dimension = Self { exponent, numerator, denominator, offset };
        points.iter().all(|(size, value)| dimension.value_at(*size) == *value).then_some(dimension)
    }

    fn value_at(&self, size: u64) -> u64 {
        let power = u128::from(size.saturating_pow(self.exponent));
        let part = power * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).unwrap_or(u64::MAX).saturating_add_signed(self.offset)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(sizes: &[(u64, &[u64])], item: u64) -> Option<ShapeLaw> {
        let points = sizes.iter().map(|(n, shape)| (*n, shape.iter().product::<u64>() * item));
        let points: Vec<Point> = points.collect();
        let shapes: Vec<&[u64]> = sizes.iter().map(|(_, shape)| *shape).collect();
        ShapeLaw::fit(&points, &shapes)
    }

    #[test]
    fn a_class_token_is_one_more_in_each_dimension() {
        let law = fit(&[(4, &[2, 8, 5, 5]), (8, &[2, 8, 9, 9])], 4).unwrap();
        assert_eq!(law.bytes_at(100), 2 * 8 * 101 * 101 * 4);
        assert_eq!(law.degree(), (2, true));
    }

    #[test]
    fn tokens_of_an_image_grow_with_the_square_of_its_side() {
        let law = fit(&[(224, &[8, 197, 197]), (448, &[8, 785, 785])], 2).unwrap();
        assert_eq!(law.bytes_at(896), 8 * 3137 * 3137 * 2);
        assert_eq!(law.degree(), (4, true));
    }

    #[test]
    fn half_of_a_spectrum_and_a_prompt_before_the_tokens() {
        assert_eq!(fit(&[(16, &[9, 3]), (32, &[17, 3])], 8).unwrap().bytes_at(64), 33 * 3 * 8);
        assert_eq!(fit(&[(16, &[116, 3]), (32, &[132, 3])], 1).unwrap().bytes_at(64), 164 * 3);
        assert_eq!(fit(&[(16, &[14, 4]), (32, &[30, 4])], 1).unwrap().bytes_at(64), 62 * 4);
    }

    #[test]
    fn no_law_of_parts_of_a_storage_or_of_dimensions_that_follow_no_rule() {
        assert!(fit(&[(4, &[7]), (8, &[9]), (12, &[50])], 4).is_none());
        assert!(fit(&[(4, &[90]), (8, &[70])], 4).is_none());
        assert!(ShapeLaw::fit(&[(4, 100), (8, 200)], &[&[5], &[9]]).is_none());
        assert!(ShapeLaw::fit(&[(4, 100), (8, 200)], &[&[25], &[5, 10]]).is_none());
        assert!(ShapeLaw::fit(&[(4, 0), (8, 0)], &[&[0], &[0]]).is_none());
    }
}
