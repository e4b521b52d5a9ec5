//! The variables of the header, to which the kinds of allocations refer by index.

use serde_json::{Value, json};

use crate::output::wording::{keeper_details, keeper_name};
use crate::study::DeviceStudy;

/// Variables beyond this number share the last row.
const MAX_VARIABLES: usize = 1000;

/// The rows of the header: allocations without a variable first, then the variables that keep the most memory.
pub(super) fn rows(device: DeviceStudy<'_, '_>) -> Vec<Value> {
    let Some(variables) = device.variables() else { return Vec::new() };
    let row = |name: &str| json!({ "name": name, "about": "" });
    let named = (0..variables.count().min(MAX_VARIABLES)).map(|index| {
        let kept = variables.row(index, device.stacks());
        json!({ "name": keeper_name(&kept), "about": keeper_details(&kept).join("; ") })
    });
    let rest = (variables.count() > MAX_VARIABLES).then(|| row("all other variables"));
    [row("freed before the snapshot")].into_iter().chain(named).chain(rest).collect()
}

/// The row of an allocation.
pub(super) fn row_of(variable: Option<u32>) -> usize {
    variable.map_or(0, |index| (index as usize).min(MAX_VARIABLES) + 1)
}

#[cfg(test)]
mod tests {
    use super::{MAX_VARIABLES, row_of};

    #[test]
    fn variables_beyond_the_limit_share_a_row() {
        assert_eq!([None, Some(0), Some(5)].map(row_of), [0, 1, 6]);
        assert_eq!([999, 1000, 5000].map(Some).map(row_of), [MAX_VARIABLES, MAX_VARIABLES + 1, MAX_VARIABLES + 1]);
    }
}
