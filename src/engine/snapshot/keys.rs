//! The dict keys and values that PyTorch writes, interned first, so that their symbol ids are constants.

use crate::allocator::trace_action::Action;
use crate::base::ids::SymbolId;
use crate::base::intern::Symbols;

macro_rules! interned_words {
    ($($name:ident = $text:literal)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Word { $($name),* }

        $(pub(super) const $name: SymbolId = SymbolId(Word::$name as u32);)*

        /// Number of these words.
        pub(super) const COUNT: usize = [$($text),*].len();

        /// A symbol table in which these words have their ids, and the names of actions the next ones.
        pub(super) fn symbols() -> Symbols {
            let mut symbols = Symbols::default();
            for text in [$($text),*].into_iter().chain(Action::ALL.iter().map(|action| action.word())) {
                symbols.intern(text);
            }
            symbols
        }
    };
}

interned_words! {
    // Trace entries, up to `POOL_ID`; `KeySet` has a bit for each of the first 64 words.
    ACTION = "action"
    ADDR = "addr"
    DEVICE_FREE = "device_free"
    SIZE = "size"
    STREAM = "stream"
    TIME_US = "time_us"
    FRAMES = "frames"
    CPP_FRAMES = "cpp_frames"
    FORWARD_FRAMES = "forward_frames"
    COMPILE_CONTEXT = "compile_context"
    USER_METADATA = "user_metadata"
    INTERNAL_METADATA = "internal_metadata"
    POOL_ID = "pool_id"
    // Segments and blocks
    DEVICE = "device"
    ADDRESS = "address"
    TOTAL_SIZE = "total_size"
    ALLOCATED_SIZE = "allocated_size"
    ACTIVE_SIZE = "active_size"
    REQUESTED_SIZE = "requested_size"
    SEGMENT_TYPE = "segment_type"
    SEGMENT_POOL_ID = "segment_pool_id"
    IS_EXPANDABLE = "is_expandable"
    BLOCKS = "blocks"
    STATE = "state"
    HISTORY = "history"
    REAL_SIZE = "real_size"
    // Frames
    FILENAME = "filename"
    LINE = "line"
    NAME = "name"
    FX_ORIGINAL_TRACE = "fx_original_trace"
    // Annotations
    STAGE = "stage"
    // Top level
    SEGMENTS = "segments"
    DEVICE_TRACES = "device_traces"
    ALLOCATOR_SETTINGS = "allocator_settings"
    EXTERNAL_ANNOTATIONS = "external_annotations"
    HOST_SEGMENTS = "host_segments"
    HOST_TRACES = "host_traces"
    // Values
    ANNOTATE = "annotate"
    USER_DEFINED = "user_defined"
    WORKSPACE_SNAPSHOT = "workspace_snapshot"
    ACTIVE_ALLOCATED = "active_allocated"
    ACTIVE_PENDING_FREE = "active_pending_free"
    ACTIVE_AWAITING_FREE = "active_awaiting_free"
    INACTIVE = "inactive"
    SMALL = "small"
    LARGE = "large"
    START = "START"
    // Added by the recorder
    OOMSCOPE = "oomscope"
}

/// A set of keys: those among the first 64 words.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeySet(u64);

impl KeySet {
    #[inline]
    pub(super) fn add(&mut self, key: SymbolId) {
        if key.0 < 64 {
            self.0 |= 1 << key.0;
        }
    }

    pub(super) fn has(self, key: SymbolId) -> bool {
        key.0 < 64 && self.0 >> key.0 & 1 == 1
    }
}
