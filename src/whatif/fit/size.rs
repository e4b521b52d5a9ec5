//! What the program was given: a number, or two, such as a batch and a length.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::base::units::count;

/// What the program was given: one whole number, or two of which the first is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Size {
    /// A batch, a length, layers.
    #[serde(rename = "size")]
    pub first: u64,
    /// The second number, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<u64>,
}

/// Both numbers of a size; where there is one, the second is 1 in all of them.
pub(super) type Numbers = [u64; 2];

impl Size {
    pub(super) fn numbers(self) -> Numbers {
        [self.first, self.second.unwrap_or(1)]
    }

    /// How many of its numbers there are.
    pub(super) fn variables(self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    /// Their product: one size is larger than another by this.
    pub(super) fn extent(self) -> u128 {
        self.numbers().into_iter().map(u128::from).product()
    }

    /// The same, one of its numbers as `change` says.
    pub(super) fn changed(self, variable: usize, change: impl Fn(u64) -> u64) -> Self {
        match variable {
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
            _ => Err("a size is a whole number from 1 on, or two as in 16x2048".to_owned()),
        };
        let (first, second) = match text.split_once(['x', 'X']) {
            Some((first, second)) => (first, Some(number(second)?)),
            None => (text, None),
        };
        Ok(Self { first: number(first)?, second })
    }
}

/// What is still to be recorded before `sizes`, of which none is there twice, tell how a program grows: nothing where
/// there are two, or of two numbers all four pairs of some two with some two.
pub(super) fn lacking(sizes: &[Size]) -> Vec<Size> {
    let Some(one) = sizes.first() else { return Vec::new() };
    let of = |variable: usize| {
        let mut all: Vec<u64> = sizes.iter().map(|size| size.numbers()[variable]).collect();
        all.sort_unstable();
        all.dedup();
        // Where nothing varies, twice as much is a beginning.
        if let [only] = all[..] {
            all.push(only.saturating_mul(2));
        }
        all
    };
    let (firsts, seconds) = (of(0), of(1));
    if one.second.is_none() {
        let all = firsts.into_iter().map(Size::from);
        return all.take(2).filter(|size| sizes.len() < 2 && !sizes.contains(size)).collect();
    }
    let pairs = |of: &[u64]| of.windows(2).map(|two| [two[0], two[1]]).collect::<Vec<_>>();
    let grids = pairs(&firsts).into_iter().flat_map(|firsts| {
        let of = move |[b, d]: [u64; 2]| firsts.map(|first| [(first, b), (first, d)]).concat();
        pairs(&seconds).into_iter().map(of).collect::<Vec<_>>()
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
        text.split_whitespace().map(|one| one.parse().unwrap()).collect()
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
    fn what_is_lacking_is_named() {
        for (given, lacks) in [
            ("4 8", ""),
            ("4", "8"),
            ("2x512 4x512 2x1024 4x1024", ""),
            ("2x512 4x512 2x1024", "4x1024"),
            ("2x512 4x512 8x512", "2x1024 4x1024"),
            ("2x512 2x1024", "4x512 4x1024"),
            ("2x512 4x512 4x1024 8x1024 8x512", ""),
        ] {
            assert_eq!(lacking(&sizes(given)), sizes(lacks), "{given}");
        }
    }
}
