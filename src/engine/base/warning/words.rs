//! Declares a public vocabulary: each word once, with its meaning.

/// Declares an enum in which each variant has a public word. The doc comment of a variant is its meaning, which the
/// documentation prints: a sentence without its period.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($(#[$attribute:meta])* $vis:vis enum $Name:ident {
        $($(#[doc = $meaning:literal])+ $(#[default $($nothing:tt)?])? $Variant:ident = $word:literal,)*
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $Name { $($(#[doc = $meaning])+ $(#[default $($nothing)?])? $Variant,)* }

        impl $Name {
            /// All variants, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$Variant,)*];

            /// The word, in kebab-case.
            pub fn word(self) -> &'static str {
                match self { $(Self::$Variant => $word,)* }
            }

            /// The variant with this word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.word() == word)
            }

            /// The meaning, in a sentence without its period.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$Variant => concat!($($meaning),+).trim_ascii_start(),)* }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }
    };
}

pub use words;
