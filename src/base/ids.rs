//! Typed row numbers. An id is an index into one table of one snapshot and means nothing elsewhere.

/// Declares a `u32` row number of its own type.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The row as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of row `index`.
            pub fn from_index(index: usize) -> Self {
                Self(to_u32(index))
            }
        }
    };
}

/// A table length or index as a 32-bit row number.
///
/// Every row costs its file several bytes, so 2^32 rows need a file far beyond any snapshot; at that
/// point the last id is handed out again rather than a wrong early one.
pub fn to_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

id!(
    /// A distinct string: see [`crate::base::intern::Symbols`].
    SymbolId
);
id!(
    /// A distinct (file, line, function): see [`crate::snapshot::Stacks`].
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
