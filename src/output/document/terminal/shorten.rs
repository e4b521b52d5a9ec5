//! Shortens source locations.

use crate::output::document::wrap::display_width;

/// Path separators of Linux and Windows.
pub(super) const SEPARATORS: [char; 2] = ['/', '\\'];

/// Shortens a location such as `/a/b/train.py:12 in step` to `room` columns, keeping the end of the path and the start
/// of the function's name. A long name leaves the path at least `MIN_PATH_COLUMNS`, so the result may be wider.
pub(super) fn shorten(place: &str, room: usize, dots: &str) -> String {
    const MIN_PATH_COLUMNS: usize = 16;
    if display_width(place) <= room {
        return place.to_owned();
    }
    let (path, name) = place.split_at(place.rfind(" in ").unwrap_or(place.len()));
    let name = &if display_width(name) > room {
        format!("{}{dots}", first_columns(name, room.saturating_sub(display_width(dots))))
    } else {
        name.to_owned()
    };
    let room = room.saturating_sub(display_width(name)).max(MIN_PATH_COLUMNS);
    if display_width(path) <= room {
        return format!("{path}{name}");
    }
    let keep = room.saturating_sub(display_width(dots));
    let end = last_columns(path, keep);
    // Start at a separator: complete directory names only.
    let end = end.find(SEPARATORS).and_then(|at| end.get(at..)).unwrap_or(end);
    format!("{dots}{end}{name}")
}

/// The longest prefix of `text` that fits into `room` columns.
fn first_columns(text: &str, room: usize) -> &str {
    let mut taken = 0;
    let fits = |(at, character): &(usize, char)| {
        taken += display_width(&text[*at..at + character.len_utf8()]);
        taken <= room
    };
    let last = text.char_indices().take_while(fits).last();
    last.map_or("", |(at, character)| &text[..at + character.len_utf8()])
}

/// The longest suffix of `text` that fits into `room` columns. Reads no more than that: a path may be megabytes long.
fn last_columns(text: &str, room: usize) -> &str {
    let mut taken = 0;
    let fits = |(_, character): &(usize, &str)| {
        taken += display_width(character);
        taken <= room
    };
    let characters = text.char_indices().rev().map(|(at, c)| (at, &text[at..at + c.len_utf8()]));
    characters.take_while(fits).last().map_or("", |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(shorten("/a/b/train.py", 20, "..."), "/a/b/train.py");
        assert_eq!(shorten("/very/long/way/to/train.py", 17, "..."), ".../to/train.py");
        assert_eq!(shorten(r"C:\very\long\way\to\train.py", 17, "..."), r"...\to\train.py");
        assert_eq!(shorten(&"/endless".repeat(1 << 20), 17, "..."), ".../endless");
        let long = "/very/long/way/to/train.py:12 in step";
        assert_eq!(shorten(long, 30, "…"), "…/long/way/to/train.py:12 in step".replace("/long/way", "/way"));
        assert_eq!(shorten("/a/b.py:1 in a_function_of_a_long_name", 14, "…"), "/a/b.py:1 in a_functio…");
        assert_eq!(shorten(&"x".repeat(40), 20, "…"), format!("…{}", "x".repeat(19)));
    }
}
