//! Reading the arguments of opcodes, with all lengths checked.

use super::error::ErrorKind;

/// The `n` bytes at `pos`; advances `pos`.
#[inline]
pub(super) fn take_bytes<'a>(bytes: &'a [u8], pos: &mut usize, n: usize) -> Result<&'a [u8], ErrorKind> {
    let end = pos.checked_add(n).ok_or(ErrorKind::Truncated)?;
    let taken = bytes.get(*pos..end).ok_or(ErrorKind::Truncated)?;
    *pos = end;
    Ok(taken)
}

/// The `N` bytes at `pos`; advances `pos`.
#[inline]
pub(super) fn take_array<const N: usize>(bytes: &[u8], pos: &mut usize) -> Result<[u8; N], ErrorKind> {
    let found = bytes.get(*pos..).and_then(|rest| rest.first_chunk::<N>());
    let array = *found.ok_or(ErrorKind::Truncated)?;
    *pos += N;
    Ok(array)
}

/// The integer in the first `n` bytes (at most 8), little-endian two's complement.
#[inline]
pub(super) fn sign_extend(word: [u8; 8], n: usize) -> i64 {
    match 8 * (8 - n) {
        64 => 0,
        unused => i64::from_le_bytes(word) << unused >> unused,
    }
}

/// A length as an index. A length beyond the address space is beyond the end of any file.
pub(super) fn to_length(n: impl Into<i128>) -> Result<usize, ErrorKind> {
    let n = n.into();
    usize::try_from(n).map_err(|_| if n < 0 { ErrorKind::InvalidLength } else { ErrorKind::Truncated })
}
