//! Tells weights from optimizer state in what one line loads from a checkpoint, by the order of the tensors.
//!
//! A model's weights come one after the other, Adam's state as two tensors for each parameter. An optimizer keeps the
//! state that it is given; weights are copied into the model, if there is one already.

use super::parameter_copies::SizeCounts;

/// Whether each tensor of a checkpoint belongs to weights. `sizes` are in the order of allocation, `parameters` counts
/// the parameters of each size. `is_partly_freed`: other tensors of the checkpoint were freed before the first step.
pub(super) fn find_weights(sizes: &[u64], parameters: &SizeCounts, is_partly_freed: bool) -> Vec<bool> {
    // Numbers of steps belong to what follows them.
    let like_parameters: Vec<usize> = (0..sizes.len()).filter(|at| parameters.contains_key(&sizes[*at])).collect();
    let loaded: Vec<u64> = like_parameters.iter().map(|at| sizes[*at]).collect();
    let (mut start, mut end) = (0, loaded.len());
    let mut last_run = 0;
    while !is_state(&loaded[start..end])
        && let Some(run) = weights_len(loaded[start..end].iter(), parameters)
    {
        (start, last_run) = (start + run, run);
    }
    while start < end
        && !is_state(&loaded[start..end])
        && let Some(run) = weights_len(loaded[start..end].iter().rev(), parameters)
    {
        end -= run;
    }
    // One tensor for each parameter may be state, too, such as momentum, which follows the weights.
    if start == loaded.len() && (start > last_run || is_partly_freed) {
        start -= last_run;
    }
    let is_weight = |at: usize| {
        let order = like_parameters.partition_point(|like| *like < at).min(loaded.len().saturating_sub(1));
        order < start || order >= end
    };
    (0..sizes.len()).map(is_weight).collect()
}

/// Whether each parameter has several tensors in a row.
fn is_state(sizes: &[u64]) -> bool {
    sizes.chunk_by(|size, next| size == next).all(|same| same.len() > 1)
}

/// Number of tensors with which `sizes` starts that are all parameters, each once.
fn weights_len<'s>(sizes: impl Iterator<Item = &'s u64> + Clone, parameters: &SizeCounts) -> Option<usize> {
    let mut missing = SizeCounts::default();
    for size in sizes.clone() {
        let count = missing.entry(*size).or_default();
        *count = (*count + 1).min(parameters[size]);
    }
    let total: u64 = missing.values().sum();
    let total = usize::try_from(total).ok().filter(|total| *total > 0)?;
    let is_missing = |size: &u64| {
        let count = missing.entry(*size).or_default();
        *count = count.checked_sub(1)?;
        Some(())
    };
    sizes.take(total).map(is_missing).collect::<Option<Vec<()>>>().map(|_| total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: [u64; 4] = [800, 40, 300, 40];

    fn weights(checkpoint: &[&[u64]], is_partly_freed: bool) -> Vec<bool> {
        let parameters: SizeCounts = [(800, 1), (40, 2), (300, 1), (7, 1)].into_iter().collect();
        find_weights(&checkpoint.concat(), &parameters, is_partly_freed)
    }

    fn expected(parts: &[(bool, usize)]) -> Vec<bool> {
        parts.iter().flat_map(|(is_weight, count)| vec![*is_weight; *count]).collect()
    }

    #[test]
    fn adam_has_two_tensors_for_each_parameter() {
        let adam = [4, 800, 800, 4, 40, 40, 4, 300, 300, 4, 40, 40];
        assert_eq!(weights(&[&MODEL, &adam], false), expected(&[(true, 4), (false, 12)]));
        assert_eq!(weights(&[&adam, &MODEL], false), expected(&[(false, 12), (true, 4)]));
        assert_eq!(weights(&[&MODEL, &MODEL, &adam], false), expected(&[(true, 8), (false, 12)]), "and an average");
        assert_eq!(weights(&[&MODEL, &adam, &MODEL], false), expected(&[(true, 4), (false, 12), (true, 4)]));
        assert_eq!(weights(&[&adam], false), expected(&[(false, 12)]));
    }

    #[test]
    fn momentum_follows_the_weights() {
        assert_eq!(weights(&[&MODEL, &MODEL], false), expected(&[(true, 4), (false, 4)]));
        assert_eq!(weights(&[&MODEL], false), expected(&[(true, 4)]));
        assert_eq!(weights(&[&MODEL], true), expected(&[(false, 4)]), "the weights are gone");
    }

    #[test]
    fn frozen_parameters_have_no_state() {
        assert_eq!(weights(&[&MODEL, &[300, 300, 40, 40]], false), expected(&[(true, 4), (false, 4)]));
    }
}
