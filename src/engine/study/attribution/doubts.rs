//! Lowers the confidence of categories that contradict the sums of all blocks.

use crate::base::units::ratio;
use crate::study::category::{Category, Classification, Confidence};
use crate::study::memory::sum_by_key;

/// If temporaries of a forward pass have a larger share, they are probably kept results.
const MAX_TEMPORARIES: f64 = 0.5;

/// Lowers the confidence of inferred optimizer state if there are no parameters, and of temporaries that hold most memory
/// of a forward pass. `bytes` has the size of each block; `in_forward`: the position is within a forward pass.
pub(super) fn doubt(bytes: &[u64], classified: &mut [Classification], in_forward: bool) {
    let sums = sum_by_key(classified.iter().map(|(category, _)| *category).zip(bytes.iter().copied()));
    let [temporaries, parameters] =
        [Category::Temporaries, Category::Parameters].map(|category| sums.get(&category).map_or(0, |sum| sum.bytes));
    let temporaries = ratio(temporaries, bytes.iter().copied().fold(0, u64::saturating_add));
    for (category, confidence) in classified.iter_mut().filter(|(_, confidence)| *confidence != Confidence::Known) {
        let is_doubtful = match category {
            Category::OptimizerState => parameters == 0,
            Category::Temporaries => in_forward && temporaries > MAX_TEMPORARIES,
            _ => false,
        };
        if is_doubtful {
            *confidence = Confidence::Low;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Category::{OptimizerState, Other, Parameters, Temporaries};
    use Confidence::{High, Known, Low};

    fn doubted(mut classified: Vec<Classification>, in_forward: bool) -> Vec<Confidence> {
        let bytes: Vec<u64> = (1..=classified.len() as u64).collect();
        doubt(&bytes, &mut classified, in_forward);
        classified.into_iter().map(|(_, confidence)| confidence).collect()
    }

    #[test]
    fn state_belongs_to_parameters() {
        assert_eq!(doubted(vec![(OptimizerState, High), (OptimizerState, Known)], false), [Low, Known]);
        assert_eq!(doubted(vec![(OptimizerState, High), (Parameters, High)], false), [High, High]);
    }

    #[test]
    fn a_forward_pass_is_not_made_of_temporaries() {
        let blocks = vec![(Other, High), (Temporaries, High), (Temporaries, High)];
        assert_eq!(doubted(blocks.clone(), true), [High, Low, Low]);
        assert_eq!(doubted(blocks, false), [High, High, High]);
        assert_eq!(doubted(vec![(Temporaries, High), (Other, High)], true), [High, High]);
    }
}
