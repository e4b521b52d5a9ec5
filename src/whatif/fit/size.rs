//! The size at which a program runs: a number, or two, such as a batch size and a sequence length.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::base::units::count;

/// One positive whole number, or two, of which the first is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Size {
    /// The first number of the size, such as a batch size.
    #[serde(rename = "size")]
    pub first: u64,
    /// The second number of the size; absent for sizes of one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<u64>,
}

/// Both numbers of a size. For sizes of one number the second is 1.
pub(super) type Numbers = [u64; 2];

impl Size {
    pub(super) fn numbers(self) -> Numbers {
        [self.first, self.second.unwrap_or(1)]
    }

    /// 1 or 2.
    pub(super) fn dimensions(self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    /// The product of the numbers, by which sizes are compared.
    pub(crate) fn product(self) -> u128 {
        self.numbers().into_iter().map(u128::from).product()
    }

    /// The same size with `change` applied to one of its numbers.
    pub(super) fn with_number(self, dimension: usize, change: impl Fn(u64) -> u64) -> Self {
        match dimension {
            0 => Self { first: change(self.first), ..self },
            _ => Self { second: self.second.map(change), ..self },
        }
    }
}

impl From<u64> for Size {
    fn from(first: u64) -> Self {
        Self { first, second: None }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.second {
            Some(second) => write!(f, "{}x{second}", self.first),
            None => f.write_str(&count(self.first)),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    /// `16`, or `16x2048`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.parse() {
            Ok(number @ 1..) => Ok(number),
            _ => Err("a size is a positive whole number, or two, such as 16x2048".to_owned()),
        };
        let (first, second) = match text.split_once(['x', 'X']) {
            Some((first, second)) => (first, Some(number(second)?)),
            None => (text, None),
        };
        Ok(Self { first: number(first)?, second })
    }
}

/// The sizes to record in addition to `sizes`, which all differ, to show how a program grows. Two sizes of one number
/// are enough; of two numbers, the four combinations of two values each.
pub(super) fn missing_sizes(sizes: &[Size]) -> Vec<Size> {
    let Some(first_size) = sizes.first() else { return Vec::new() };
    let values = |dimension: usize| {
        let mut values: Vec<u64> = sizes.iter().map(|size| size.numbers()[dimension]).collect();
        values.sort_unstable();
        values.dedup();
        // If a number does not vary, suggest twice its value.
        if let [only] = values[..] {
            values.push(only.saturating_mul(2));
        }
        values
    };
    let (firsts, seconds) = (values(0), values(1));
    if first_size.second.is_none() {
        let sizes_to_record = firsts.into_iter().map(Size::from);
        return sizes_to_record.take(2).filter(|size| sizes.len() < 2 && !sizes.contains(size)).collect();
    }
    let pairs = |values: &[u64]| values.windows(2).map(|two| [two[0], two[1]]).collect::<Vec<_>>();
    let grids = pairs(&firsts).into_iter().flat_map(|firsts| {
        let corners = move |[b, d]: [u64; 2]| firsts.map(|first| [(first, b), (first, d)]).concat();
        pairs(&seconds).into_iter().map(corners).collect::<Vec<_>>()
    });
    let missing = grids.map(|grid| {
        let all = grid.into_iter().map(|(first, second)| Size { first, second: Some(second) });
        all.filter(|size| !sizes.contains(size)).collect::<Vec<_>>()
    });
    missing.min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<Size> {
        text.split_whitespace().map(|first_size| first_size.parse().unwrap()).collect()
    }

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for text in ["8", "16x2048"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["", "0", "4x", "x4", "4x0", "4x4x4", "-1", "a"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn missing_sizes_are_named() {
        for (given, lacks) in [
            ("4 8", ""),
            ("4", "8"),
            ("2x512 4x512 2x1024 4x1024", ""),
            ("2x512 4x512 2x1024", "4x1024"),
            ("2x512 4x512 8x512", "2x1024 4x1024"),
            ("2x512 2x1024", "4x512 4x1024"),
            ("2x512 4x512 4x1024 8x1024 8x512", ""),
        ] {
            assert_eq!(missing_sizes(&sizes(given)), sizes(lacks), "{given}");
        }
    }
}
