//! All the tables, one after the other.

use super::system::System;
use super::{device, frameworks, host, serving};

/// Every message that is known. Of two that fit, the first is meant.
pub fn systems() -> impl Iterator<Item = &'static System> {
    [frameworks::ROWS, serving::ROWS, device::ROWS, host::ROWS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_whole_and_finds_its_own_words() {
        let rows: Vec<_> = systems().collect();
        assert!(rows.len() > 40, "{}", rows.len());
        for row in &rows {
            let text = row.words.join(" ");
            assert_eq!(row.find(&text), Some(0), "{text}");
            let parts = [row.kind, row.name, row.title, row.means];
            assert!(parts.iter().all(|part| !part.is_empty()), "{text}");
            assert!(!row.advice.is_empty() && !row.means.ends_with('.'), "{text}");
            let first = rows.iter().find(|other| other.find(&text).is_some());
            assert_eq!(first, Some(row), "{text}: another row is found first");
        }
    }
}
