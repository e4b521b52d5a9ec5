//! An iteration that failed because of its input.

use std::fmt;

use crate::analysis::failure::UnusualInput;
use crate::base::units::{count, counted, size, times};
use crate::study::iterations::InputChange;

/// The memory that the iteration adds to what stays allocated, for the first line.
impl fmt::Display for UnusualInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = self.step.map_or_else(|| "this step".to_owned(), |step| format!("step {}", count(step)));
        let before = if self.iterations == 1 {
            "the one before it".to_owned()
        } else {
            format!("the {} before it", count(self.iterations))
        };
        match self.change {
            InputChange::Single => {
                write!(f, "{step} adds {} what {before} added", times(self.needed_bytes, self.most_bytes))
            }
            InputChange::Growing | InputChange::Varying => {
                let how = if self.change == InputChange::Growing { "grow" } else { "vary" };
                let (needed, most) = (size(self.needed_bytes), size(self.most_bytes));
                write!(f, "inputs {how}: {step} adds {needed}, {before} at most {most}")
            }
        }
    }
}

/// How to avoid the failure.
pub(super) fn limit_input(input: &UnusualInput) -> String {
    let (line, now, most) = (input.location.brief_label(), size(input.input_bytes), size(input.most_input_bytes));
    let (usual, ratio) = (size(input.usual_input_bytes), times(input.input_bytes, input.usual_input_bytes));
    let before = counted(input.iterations, "step");
    match input.change {
        InputChange::Single => format!("cut or skip the input of {now} at {line}: {ratio} the usual {usual}"),
        InputChange::Growing => {
            format!("stop the inputs at {line} from growing: {now} now, up to {most} in the {before} before")
        }
        InputChange::Varying => {
            format!("limit the inputs at {line}: {now} now, up to {most} in the {before} before")
        }
    }
}
