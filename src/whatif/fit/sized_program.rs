//! A recorded program at another size.

use crate::replay::ops::{Program, ResizedRequest};

/// The program, and where its requests come from.
pub(super) struct SizedProgram<'a> {
    pub(super) program: Program<'a>,
    /// One for each request, in order, without those of blocks from before the recording.
    pub(super) sources: Vec<RequestSource>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RequestSource {
    /// The index of the recorded request.
    pub(super) request: usize,
    /// A buffer that the call of this request takes.
    pub(super) is_temporary: bool,
}

impl<'a> SizedProgram<'a> {
    /// The recorded operations, with other requests.
    pub(super) fn from_requests(program: &Program<'a>, requests: &[ResizedRequest], initial: &[u64]) -> Self {
        let sources = requests.iter().enumerate().flat_map(|(request, resized)| sources_of(request, resized));
        Self { program: program.resized(requests, initial), sources: sources.collect() }
    }
}

/// The sources of a request and of the buffers that its call takes.
fn sources_of(request: usize, resized: &ResizedRequest) -> impl Iterator<Item = RequestSource> + use<> {
    let own = resized.bytes.map(|_| RequestSource { request, is_temporary: false });
    let buffers = resized.temporaries.into_iter().flatten().map(move |_| RequestSource { request, is_temporary: true });
    own.into_iter().chain(buffers)
}
