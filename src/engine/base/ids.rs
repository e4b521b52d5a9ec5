//! Typed ids. An id is an index into one table of one snapshot and means nothing elsewhere.

/// Declares a `u32` index as a type.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }

            pub fn from_index(index: usize) -> Self {
                Self(to_u32(index))
            }
        }
    };
}

/// A table length or index as `u32`; it saturates.
///
/// Each item takes several bytes in its file, so 2^32 items need a file far larger than any snapshot. Beyond that, the
/// last id repeats, rather than a wrong early one.
pub fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

id!(
    /// A distinct string in [`crate::base::intern::Symbols`].
    SymbolId
);
id!(
    /// A distinct (file, line, function) in [`crate::snapshot::Stacks`].
    FrameId
);
id!(
    /// A distinct list of frames, innermost first; 0 is the empty stack.
    StackId
);
id!(
    /// A distinct pool id of the allocator; 0 is the default pool (0, 0).
    PoolId
);
