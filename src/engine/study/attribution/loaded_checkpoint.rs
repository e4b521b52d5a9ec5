//! Separates weights from optimizer state in what one line loads from a checkpoint, by the order of the tensors.
//!
//! A model's weights come one after the other, Adam's state as two tensors for each parameter. An optimizer keeps the
//! state that it is given; weights are copied into the model, if there is one already.

use crate::base::intern::SeededMap;

/// Number of blocks by requested size.
pub(super) type SizeCounts = SeededMap<u64, u64>;

/// Number of tensors of state that an optimizer has for each parameter: Adam, and Adam with the maximum (`amsgrad`).
const STATES: [usize; 2] = [2, 3];

/// Whether each tensor of a checkpoint belongs to weights. `sizes` are in the order of allocation, `parameters` counts
/// the parameters of each size. `is_partly_freed`: other tensors of the checkpoint were freed before the first step.
pub(super) fn find_weights(sizes: &[u64], parameters: &SizeCounts, is_partly_freed: bool) -> Vec<bool> {
    // Numbers of steps belong to what follows them.
    let like_parameters: Vec<usize> = (0..sizes.len()).filter(|at| parameters.contains_key(&sizes[*at])).collect();
    let loaded: Vec<u64> = like_parameters.iter().map(|at| sizes[*at]).collect();
    let (mut is_weight, mut last_run) = (Vec::new(), 0);
    while is_weight.len() < loaded.len() {
        let rest = &loaded[is_weight.len()..];
        let present = present_in(rest.iter(), parameters);
        let blocks: u64 = present.values().sum();
        let state = STATES.map(|states| state_len(rest, states, present.clone())).into_iter().max().unwrap_or(0);
        let is_state = state == rest.len() || state as u64 >= blocks;
        let weights = if is_state { None } else { weights_len(rest.iter(), parameters) };
        last_run = weights.unwrap_or(0);
        // Tensors in an unknown order are weights if the state is found already.
        let run = weights.unwrap_or(if is_state { state } else { rest.len() });
        let are_weights = weights.is_some() || !is_state && is_weight.contains(&false);
        is_weight.extend(std::iter::repeat_n(are_weights, run));
    }
    // One tensor for each parameter may be state, too, such as momentum, which follows the weights.
    let others = is_weight.len() - last_run;
    if is_weight.iter().all(|is_weight| *is_weight) && (others > 0 || is_partly_freed) {
        is_weight[others..].fill(false);
    }
    let of_next = |at: usize| like_parameters.partition_point(|like| *like < at).min(loaded.len().saturating_sub(1));
    (0..sizes.len()).map(|at| is_weight.get(of_next(at)).copied().unwrap_or(false)).collect()
}

/// The parameters that `sizes` has, by size.
fn present_in<'s>(sizes: impl Iterator<Item = &'s u64>, parameters: &SizeCounts) -> SizeCounts {
    let mut present = SizeCounts::default();
    for size in sizes {
        let count = present.entry(*size).or_default();
        *count = (*count + 1).min(parameters.get(size).copied().unwrap_or(0));
    }
    present
}

/// Number of tensors with which `sizes` starts that are all parameters, each once. Parameters whose size nothing has do
/// not count.
pub(super) fn weights_len<'s>(sizes: impl Iterator<Item = &'s u64> + Clone, parameters: &SizeCounts) -> Option<usize> {
    let mut missing = present_in(sizes.clone(), parameters);
    let total: u64 = missing.values().sum();
    let total = usize::try_from(total).ok().filter(|total| *total > 0)?;
    sizes.take(total).all(|size| take_one(&mut missing, *size)).then_some(total)
}

/// Number of tensors with which `sizes` starts that are `states` in a row for each of the `missing` parameters.
fn state_len(sizes: &[u64], states: usize, mut missing: SizeCounts) -> usize {
    let groups = sizes.chunks_exact(states);
    let is_state = |group: &&[u64]| group.iter().all(|size| *size == group[0]) && take_one(&mut missing, group[0]);
    groups.take_while(is_state).count() * states
}

/// Takes a parameter of `size` from those that are missing, if there is one.
fn take_one(missing: &mut SizeCounts, size: u64) -> bool {
    let count = missing.get_mut(&size).filter(|count| **count > 0);
    count.map(|count| *count -= 1).is_some()
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
    fn layers_repeat() {
        let parameters: SizeCounts = [(800, 2), (300, 2), (40, 2)].into_iter().collect();
        let model = [800, 300, 40, 300, 40, 800];
        let adam = [800, 800, 300, 300, 40, 40, 300, 300, 40, 40, 800, 800];
        let is_weight = find_weights(&[&adam[..], &model, &model].concat(), &parameters, false);
        assert_eq!(is_weight, expected(&[(false, 12), (true, 12)]));
        let amsgrad: Vec<u64> = model.iter().flat_map(|size| [*size; 3]).collect();
        let is_weight = find_weights(&[&model[..], &amsgrad].concat(), &parameters, false);
        assert_eq!(is_weight, expected(&[(true, 6), (false, 18)]));
    }

    #[test]
    fn buffers_are_no_state() {
        let parameters: SizeCounts = [(800, 1), (40, 1), (300, 1)].into_iter().collect();
        let model = [800, 40, 40, 40, 300];
        let adam = [800, 800, 40, 40, 300, 300];
        let is_weight = find_weights(&[&adam[..], &model].concat(), &parameters, false);
        assert_eq!(is_weight, expected(&[(false, 6), (true, 5)]));
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
