//! All frames of a generated snapshot and where the different kinds of them are.

use std::ops::Range;

use super::frame_names::{
    ARGUMENTS, CALLS, ENGINE, FREE, Fixed, GATHER, INTERPRETER, MALLOC, OPS, PYTHON_FILES, TORCH_CPU, TORCH_CUDA,
};
use super::random::Random;

/// Frames per kind of variable frame. A power of two: the number of a stack is spelled in digits
/// of this base, see `stacks`.
pub const POOL: usize = 512;

pub type FrameId = u32;

pub struct Frame {
    pub name: String,
    pub file: &'static str,
    pub line: u32,
}

pub struct FramePool {
    /// Each frame once.
    pub frames: Vec<Frame>,
    pub innermost_of_malloc: Vec<FrameId>,
    pub innermost_of_free: Vec<FrameId>,
    pub outermost_in_main: Vec<FrameId>,
    pub outermost_in_backward: Vec<FrameId>,
    pub calls: Vec<FrameId>,
    /// The first of `POOL` frames for each of the four frames of an operator call, from the
    /// inside out.
    pub operator: [FrameId; 4],
    /// The first of `POOL` Python frames.
    pub python: FrameId,
}

impl FramePool {
    pub fn new(random: &mut Random) -> Self {
        let mut frames = Vec::new();
        let gather: Vec<_> = add_fixed(&mut frames, &GATHER).collect();
        let malloc = add_fixed(&mut frames, &MALLOC);
        let free = add_fixed(&mut frames, &FREE);
        let main = add_fixed(&mut frames, &INTERPRETER);
        let backward = add_fixed(&mut frames, &ENGINE);
        let calls = add_fixed(&mut frames, &CALLS);
        let operator = [
            add_operators(&mut frames, random, TORCH_CUDA, "??", ""),
            add_operators(&mut frames, random, TORCH_CPU, "redispatch", "c10::DispatchKeySet, "),
            add_operators(&mut frames, random, TORCH_CPU, "??", ""),
            add_operators(&mut frames, random, TORCH_CPU, "call", ""),
        ];
        let python = add_python(&mut frames, random);
        FramePool {
            innermost_of_malloc: gather.iter().copied().chain(malloc).collect(),
            innermost_of_free: gather.iter().copied().chain(free).collect(),
            outermost_in_main: main.collect(),
            outermost_in_backward: backward.collect(),
            calls: calls.collect(),
            operator,
            python,
            frames,
        }
    }
}

fn add_fixed(frames: &mut Vec<Frame>, fixed: &[Fixed]) -> Range<FrameId> {
    let first = frames.len() as FrameId;
    frames.extend(fixed.iter().map(|&(name, file, line)| Frame { name: name.to_owned(), file, line }));
    first..frames.len() as FrameId
}

fn add_operators(
    frames: &mut Vec<Frame>,
    random: &mut Random,
    file: &'static str,
    function: &str,
    leading_argument: &str,
) -> FrameId {
    let first = frames.len() as FrameId;
    for (index, operator) in OPS.split(' ').cycle().take(POOL).enumerate() {
        let arguments = ARGUMENTS[index % ARGUMENTS.len()];
        let name = if function == "??" {
            function.to_owned()
        } else {
            format!("at::_ops::{operator}::{function}({leading_argument}{arguments})")
        };
        // Offsets go up in strides, so that no two frames are equal.
        let line = 40_000_000 + index as u32 * 20_000 + random.below(20_000) as u32;
        frames.push(Frame { name, file, line });
    }
    first
}

fn add_python(frames: &mut Vec<Frame>, random: &mut Random) -> FrameId {
    let first = frames.len() as FrameId;
    for index in 0..POOL {
        let (name, file) = PYTHON_FILES[index % PYTHON_FILES.len()];
        let line = 20 + (index / PYTHON_FILES.len()) as u32 * 50 + random.below(50) as u32;
        frames.push(Frame { name: name.to_owned(), file, line });
    }
    first
}
