//! Changes that make a tensor smaller or avoid it: the text of the failing line shows the tensor, and the sizes of
//! blocks agree; or a call without gradients can be computed in parts, of which one would fit.

use super::failure::OomReport;
use super::local_tensors::{LocalTensorReport, LocalTensors, REQUEST_GRANULE};
use super::running_calls::{RunningCalls, live_blocks};
use crate::allocator::verdict::Verdict;
use crate::base::units::ratio;
use crate::python::{LargeValue, LoopKind, RunningValue};
use crate::stacks::frames::{FrameReport, Origin, forward_slashes};
use crate::stacks::phases::KnownPurpose;
use crate::whatif::program::{CureReplay, ProgramRow, replay_in_parts};

/// A call that made a smaller share of the memory is not the cause.
const MIN_SHARE: f64 = 0.25;
/// The numbers of parts to try.
const PARTS: [u64; 2] = [2, 8];
/// A request below 1/this of the memory is not worth making smaller.
const MIN_PARTS: u64 = 8;

/// The innermost call without gradients, outside of modules, of which a part would fit, with its replay.
pub(super) fn call_in_parts(
    oom: &OomReport,
    running: &RunningCalls<'_, '_>,
) -> Option<(ShapeCure, Option<ProgramRow>)> {
    let (device, program) = (running.device, running.device.text());
    let stack = device.device().entry(running.failed).extended_stack;
    let frames = StackFrames::new(running)?;
    let is_pass = oom.verdict == Verdict::Capacity && !device.stacks().line_id(stack).is_backward;
    // A model that is made or moved has no parts.
    let purpose = device.phases().stack_traits(device.device().entry(running.failed).stack).purpose;
    let is_model = oom.is_in_optimizer() || matches!(purpose, Some(KnownPurpose::Parameters | KnownPurpose::Model));
    if !is_pass || is_model {
        return None;
    }
    let needed = oom.allocated_bytes.saturating_add(oom.requested_bytes);
    for at in frames.outside_modules..running.lines.len() {
        let line = &running.lines[at];
        if !frames.is_grad_off(running, at) {
            return None;
        }
        let since = running.start_of_call(at);
        let live = live_blocks(device.device(), since..running.failed, |_| true);
        let bytes = live.into_iter().fold(oom.requested_bytes, u64::saturating_add);
        let is_cause = ratio(bytes, needed) >= MIN_SHARE;
        let mut parts = PARTS.into_iter().filter(|parts| is_cause && bytes - bytes / parts >= oom.shortfall_bytes);
        let replayed = parts.find_map(|parts| match replay_in_parts(device, since, running.failed, parts) {
            CureReplay::Served(row) => Some(Some(*row)),
            CureReplay::NotTried => Some(None),
            CureReplay::NotServed => None,
        });
        if let Some(row) = replayed {
            // An outer call that has made nothing else has the same parts, and more to choose from.
            let outer = (at + 1..running.lines.len()).take_while(|outer| {
                let is_single = program.innermost_loop(&running.lines[outer - 1]) != Some(LoopKind::OverData);
                frames.is_grad_off(running, *outer) && is_single && running.start_of_call(*outer) == since
            });
            let calls = [at].into_iter().chain(outer).collect::<Vec<_>>();
            let known = calls.iter().rev().find_map(|at| {
                let inner = at.checked_sub(1).map(|inner| running.lines[inner].function);
                program.running_value(&running.lines[*at], inner).map(|value| (*at, value))
            });
            // Without text, nothing but PyTorch's own code shows that the line computes with tensors.
            if known.is_none() && (program.has_text(line) || !frames.is_in_torch && frames.outside_modules == 0) {
                return None;
            }
            let (at, value) = known.map_or((at, None), |(at, value)| (at, Some(value)));
            let line = &running.lines[at];
            let at = device.stacks().statement_report(line.file, line.line, line.function);
            return Some((ShapeCure::Call(Box::new(CallInParts { at, value })), row));
        }
        // The blocks of a loop over data are no single call of the line around it.
        if program.innermost_loop(line) != Some(LoopKind::Counted) {
            return None;
        }
    }
    None
}

/// The tensor that the innermost line makes, and that could be smaller, as far as its text and the sizes of blocks show it.
pub(super) fn large_value_of(
    oom: &OomReport,
    running: &RunningCalls<'_, '_>,
    locals: Option<&LocalTensors>,
) -> Option<ShapeCure> {
    let (device, frames) = (running.device, StackFrames::new(running)?);
    if let Some(line) = frames.vmap.and_then(|at| running.lines.get(at)) {
        return Some(ShapeCure::Chunks(device.stacks().statement_report(line.file, line.line, line.function)));
    }
    let line = running.lines.first().filter(|line| !frames.calls_module && !line.calls_package)?;
    let stack = device.device().entry(running.failed).extended_stack;
    let is_dominant = oom.requested_bytes >= oom.allocated_bytes / MIN_PARTS && oom.verdict == Verdict::Capacity;
    if device.stacks().line_id(stack).is_backward || !is_dominant {
        return None;
    }
    let values = device.text().large_values(line);
    let own = live_blocks(device.device(), running.since[0].0..running.failed, |_| true);
    let all = live_blocks(device.device(), 0..running.failed, |_| true);
    let sizes = Sizes { requested_bytes: oom.requested_bytes, own: &own, all: &all };
    values.into_iter().find_map(|value| shape_cure(value, &sizes, locals))
}

/// Facts about the stack of the failing request.
struct StackFrames {
    /// Number of lines of the program inside the outermost call of a module.
    outside_modules: usize,
    /// The line that calls the outermost function that PyTorch runs without gradients.
    grad_off: Option<usize>,
    /// The innermost line calls a module of PyTorch.
    calls_module: bool,
    /// Python code of PyTorch makes the request.
    is_in_torch: bool,
    /// The line that calls a function through `torch.vmap`.
    vmap: Option<usize>,
}

impl StackFrames {
    /// `None` inside the forward pass of an `autograd.Function`, where gradients are off even in a program that trains.
    fn new(running: &RunningCalls<'_, '_>) -> Option<Self> {
        let device = running.device;
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let mut found =
            Self { outside_modules: 0, grad_off: None, calls_module: false, is_in_torch: false, vmap: None };
        let mut lines = 0;
        for id in stacks.frames_with_callers(device.device().entry(running.failed).extended_stack) {
            let frame = snapshot.stacks.frame(id);
            let file = forward_slashes(snapshot.text(frame.file));
            found.is_in_torch |= lines == 0 && stacks.origin(id) == Origin::Torch;
            match snapshot.text(frame.name) {
                _ if stacks.origin(id) == Origin::User => lines += 1,
                "apply" if file.ends_with("torch/autograd/function.py") => return None,
                _ if file.ends_with("torch/_functorch/vmap.py") => found.vmap = Some(lines),
                "_call_impl" => {
                    found.outside_modules = lines;
                    found.calls_module |= lines == 0;
                }
                "decorate_context" if file.ends_with("torch/utils/_contextlib.py") => found.grad_off = Some(lines),
                _ => {}
            }
        }
        Some(found)
    }

    /// Whether PyTorch records no graph in the call at line `at`.
    fn is_grad_off(&self, running: &RunningCalls<'_, '_>, at: usize) -> bool {
        self.grad_off.is_some_and(|off| at <= off) || !running.device.text().has_grad(&running.lines[at..])
    }
}

/// A change of the program, with the tensors of the failing function; their shapes are empty if they are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeCure {
    /// Give two tensors the same shape: of (N, 1) and (N) an operator makes (N, N).
    SameShape([LocalTensorReport; 2]),
    /// Use fused attention instead of a matrix of scores; query, key and value.
    FusedAttention([String; 3]),
    /// Compute distances without the differences of all pairs.
    Distances([LocalTensorReport; 2]),
    /// Multiply rows by a vector instead of by its diagonal matrix.
    Diagonal(String),
    /// Compute all pairs of rows of two tensors in parts.
    Parts([LocalTensorReport; 2]),
    /// Find the largest elements without sorting all.
    Largest(String),
    /// Broadcast a tensor instead of repeating it.
    Broadcast(String),
    /// Keep zeros and ones in one byte each.
    Narrow(String),
    /// Keep the elements of a square matrix that are not zero; its length.
    Sparse(String),
    /// Compute a call without gradients in parts.
    Call(Box<CallInParts>),
    /// Give a call of `vmap` a chunk size.
    Chunks(FrameReport),
}

/// A call of which a part would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInParts {
    /// Its line.
    pub at: FrameReport,
    /// The value that it computes; `None` if its text is not known.
    pub value: Option<RunningValue>,
}

impl ShapeCure {
    /// The change is at a line of its own, not at that of the request.
    pub fn has_line(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Chunks(_))
    }
}

/// The failed request beside the live blocks.
struct Sizes<'b> {
    requested_bytes: u64,
    /// The blocks that the running function has made.
    own: &'b [u64],
    /// All blocks of the recording.
    all: &'b [u64],
}

/// Minimum number of rows whose table of pairs is large.
const MIN_ROWS: u64 = 1024;
/// Smaller blocks divide many requests by chance.
const MIN_SOURCE_BYTES: u64 = 1 << 16;

impl Sizes<'_> {
    /// Whether the request is for all pairs of the elements of a block.
    fn is_square(&self) -> bool {
        [4_u64, 2, 8].into_iter().any(|element| {
            let rows = (self.requested_bytes / element).isqrt();
            rows >= MIN_ROWS
                && is_bytes(rows * rows * element, self.requested_bytes)
                && self.all.iter().any(|bytes| is_bytes(rows * element, *bytes))
        })
    }

    /// Whether the request is `times` as large as a block.
    fn has_source(&self, times: impl Fn(u64) -> bool) -> bool {
        let mut sources = self.all.iter().filter(|bytes| **bytes >= MIN_SOURCE_BYTES);
        sources.any(|bytes| self.requested_bytes.is_multiple_of(*bytes) && times(self.requested_bytes / bytes))
    }

    /// Whether the request is at least twice as large as every block that the function made, ignoring equal ones.
    fn is_largest(&self) -> bool {
        let mut inputs = self.own.iter().filter(|bytes| **bytes != self.requested_bytes).peekable();
        inputs.peek().is_some() && inputs.all(|bytes| *bytes <= self.requested_bytes / 2)
    }
}

/// Whether a block of `known` bytes is a request for `bytes`, rounded or as made.
fn is_bytes(bytes: u64, known: u64) -> bool {
    known == bytes || bytes.checked_next_multiple_of(REQUEST_GRANULE) == Some(known)
}

/// The tensor of the variable `name`.
fn local_tensor(name: String, locals: Option<&LocalTensors>) -> LocalTensorReport {
    let known = locals.and_then(|locals| locals.tensors.iter().find(|tensor| tensor.name == name));
    known.cloned().unwrap_or_else(|| LocalTensorReport { name, dtype: String::new(), shape: Vec::new() })
}

/// The change that `value` suggests.
fn shape_cure(value: LargeValue, sizes: &Sizes<'_>, locals: Option<&LocalTensors>) -> Option<ShapeCure> {
    let (is_it, cure) = match value {
        LargeValue::Scores(names) => (sizes.is_largest(), ShapeCure::FusedAttention(names)),
        LargeValue::Distances(names) => (true, ShapeCure::Distances(names.map(|name| local_tensor(name, locals)))),
        LargeValue::Pairs(names) => (true, ShapeCure::Parts(names.map(|name| local_tensor(name, locals)))),
        LargeValue::Elements(names) => {
            (sizes.is_square(), ShapeCure::SameShape(names.map(|name| local_tensor(name, locals))))
        }
        // Values, or indices in int64.
        LargeValue::Sorted(name) => (sizes.has_source(|times| matches!(times, 1 | 2 | 4)), ShapeCure::Largest(name)),
        LargeValue::Repeated(name) => (sizes.has_source(|times| times > 1), ShapeCure::Broadcast(name)),
        LargeValue::OneHot(name) => (true, ShapeCure::Narrow(name)),
        LargeValue::Diagonal(name) => (sizes.is_square(), ShapeCure::Diagonal(name)),
        LargeValue::Zeros(length) => (true, ShapeCure::Sparse(length)),
    };
    is_it.then_some(cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cure(value: LargeValue, requested_bytes: u64, blocks: &[u64]) -> Option<ShapeCure> {
        shape_cure(value, &Sizes { requested_bytes, own: blocks, all: blocks }, None)
    }

    #[test]
    fn all_pairs_have_the_square_of_the_elements_of_a_block() {
        let pair = LargeValue::Elements(["prediction".to_owned(), "target".to_owned()]);
        let Some(ShapeCure::SameShape([column, row])) = cure(pair.clone(), 1_600_000_000, &[80_000]) else { panic!() };
        assert_eq!((column.name, row.name), ("prediction".into(), "target".into()));
        // In blocks of 512 bytes.
        assert!(cure(pair.clone(), 1_600_000_000, &[80_384]).is_some());
        assert_eq!(cure(pair.clone(), 1_600_000_000, &[40_000]), None);
        assert_eq!(cure(pair.clone(), 80_000, &[80_000]), None);
        assert_eq!(cure(pair.clone(), (MIN_ROWS - 1) * (MIN_ROWS - 1) * 4, &[(MIN_ROWS - 1) * 4]), None);
        assert_eq!(cure(pair, u64::MAX, &[u64::MAX]), None);
        let diagonal = cure(LargeValue::Diagonal("weights".to_owned()), 3_600_000_000, &[120_000]);
        assert_eq!(diagonal, Some(ShapeCure::Diagonal("weights".to_owned())));
    }

    #[test]
    fn copies_are_several_times_as_large_as_a_block() {
        let repeated = LargeValue::Repeated("history".to_owned());
        let broadcast = Some(ShapeCure::Broadcast("history".to_owned()));
        assert_eq!(cure(repeated.clone(), 500 << 20, &[1 << 20]), broadcast);
        assert_eq!(cure(repeated.clone(), 1 << 20, &[1 << 20]), None);
        assert_eq!(cure(repeated, 500 << 20, &[1 << 10]), None);
        for (times, is_cured) in [(1, true), (2, true), (3, false)] {
            let sorted = LargeValue::Sorted("scores".to_owned());
            assert_eq!(cure(sorted, times << 20, &[1 << 20]).is_some(), is_cured, "{times}");
        }
    }

    #[test]
    fn scores_are_larger_than_queries_and_keys() {
        let scores = LargeValue::Scores(["q", "k", "v"].map(str::to_owned));
        assert!(cure(scores.clone(), 400 << 20, &[36 << 20, 400 << 20]).is_some());
        assert!(cure(scores.clone(), 400 << 20, &[200 << 20]).is_some());
        assert_eq!(cure(scores.clone(), 400 << 20, &[201 << 20]), None);
        // One new query.
        assert_eq!(cure(scores.clone(), 1 << 20, &[36 << 20]), None);
        assert_eq!(cure(scores, 1 << 20, &[1 << 20]), None);
    }
}
