//! JSON in two parts: the keys of a report that are promised, then all others under `details`.

use serde::Serialize;
use serde::ser::{Error, Impossible, SerializeMap, SerializeStruct, Serializer};

/// Serializes a type that derives `Serialize` with `#[serde(remote = "Self")]`: the keys in braces, flattened ones
/// included, and `details` with the others.
#[macro_export]
macro_rules! promised {
    ($Report:ident { $($key:ident),* $(,)? }) => {
        impl serde::Serialize for $Report {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                struct AllKeys<'a>(&'a $Report);
                impl serde::Serialize for AllKeys<'_> {
                    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                        $Report::serialize(self.0, serializer)
                    }
                }
                $crate::base::details::serialize(&AllKeys(self), &[$(stringify!($key)),*], serializer)
            }
        }
    };
}

pub use promised;

/// Serializes the keys of `report` that are `promised`, and the others under `details`.
///
/// # Errors
/// Any error from `serializer`; a report that is no object.
pub fn serialize<S: Serializer>(
    report: &impl Serialize,
    promised: &'static [&'static str],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(None)?;
    report.serialize(Part { object: &mut object, promised, is_promised: true, is_key_in: false })?;
    object.serialize_entry("details", &Details { report, promised })?;
    object.end()
}

/// Serializes a report as further entries of `object`.
pub fn keys_in<M: SerializeMap>(object: &mut M) -> impl Serializer<Ok = (), Error = M::Error> {
    Part { object, promised: &[], is_promised: false, is_key_in: false }
}

struct Details<'r, T> {
    report: &'r T,
    promised: &'static [&'static str],
}

impl<T: Serialize> Serialize for Details<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        let promised = self.promised;
        self.report.serialize(Part { object: &mut object, promised, is_promised: false, is_key_in: false })?;
        object.end()
    }
}

/// The keys of a report that are promised, or that are not, written into an `object`.
struct Part<'o, M> {
    object: &'o mut M,
    promised: &'static [&'static str],
    is_promised: bool,
    /// The last key is in this part.
    is_key_in: bool,
}

impl<M: SerializeMap> SerializeMap for Part<'_, M> {
    type Ok = ();
    type Error = M::Error;

    fn serialize_key<K: Serialize + ?Sized>(&mut self, key: &K) -> Result<(), M::Error> {
        let name = serde_json::to_value(key).map_err(M::Error::custom)?;
        self.is_key_in = self.promised.iter().any(|promised| name == *promised) == self.is_promised;
        if self.is_key_in { self.object.serialize_key(key) } else { Ok(()) }
    }

    fn serialize_value<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), M::Error> {
        if self.is_key_in { self.object.serialize_value(value) } else { Ok(()) }
    }

    fn end(self) -> Result<(), M::Error> {
        Ok(())
    }
}

impl<M: SerializeMap> SerializeStruct for Part<'_, M> {
    type Ok = ();
    type Error = M::Error;

    fn serialize_field<V: Serialize + ?Sized>(&mut self, key: &'static str, value: &V) -> Result<(), M::Error> {
        self.serialize_entry(key, value)
    }

    fn end(self) -> Result<(), M::Error> {
        Ok(())
    }
}

/// A report is an object: every other type is refused.
macro_rules! refuse {
    ($($name:ident($($type:ty),*) -> $Ok:ty;)*) => {
        $(fn $name(self $(, _: $type)*) -> Result<$Ok, M::Error> {
            Err(M::Error::custom("only objects have details"))
        })*
    };
}

impl<M: SerializeMap> Serializer for Part<'_, M> {
    type Ok = ();
    type Error = M::Error;
    type SerializeSeq = Impossible<(), M::Error>;
    type SerializeTuple = Impossible<(), M::Error>;
    type SerializeTupleStruct = Impossible<(), M::Error>;
    type SerializeTupleVariant = Impossible<(), M::Error>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), M::Error>;

    fn serialize_map(self, _: Option<usize>) -> Result<Self, M::Error> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, M::Error> {
        Ok(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), M::Error> {
        self.serialize_none()
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Result<(), M::Error> {
        self.serialize_none()
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), M::Error> {
        self.serialize_none()
    }

    refuse! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_str(&str) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}
