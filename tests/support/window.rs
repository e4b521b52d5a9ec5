//! Parts of a trace, as tests name them.
#![allow(unreachable_pub)]

use oomscope::study::{Bound, Window};

pub fn between(from: Option<u64>, to: Option<u64>) -> Window {
    Window { from: from.map(Bound::Entry), to: to.map(Bound::Entry) }
}

pub fn last(entries: u64) -> Window {
    Window { from: Some(Bound::BeforeEnd(entries)), to: None }
}

/// So many entries before and after the last failed request; all of them if none failed.
pub fn around_failure(entries: u32) -> Window {
    let entries = i64::from(entries);
    Window { from: Some(Bound::FromFailure(-entries)), to: Some(Bound::FromFailure(entries + 1)) }
}
