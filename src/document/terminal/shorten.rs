//! Places in the source in little room.

use crate::document::wrap::width;

/// A place such as `/a/b/train.py:12 in step` in at most `room` columns, or in those that its function's name
/// needs: the end of the path tells most.
pub(super) fn shorten(place: &str, room: usize, dots: &str) -> String {
    const LEAST: usize = 16;
    if width(place) <= room {
        return place.to_owned();
    }
    let (path, name) = place.split_at(place.rfind(" in ").unwrap_or(place.len()));
    let room = room.saturating_sub(width(name)).max(LEAST);
    if width(path) <= room {
        return place.to_owned();
    }
    let keep = room.saturating_sub(width(dots));
    let mut end = path;
    while width(end) > keep {
        let mut rest = end.chars();
        rest.next();
        end = rest.as_str();
    }
    // Rather a whole directory name than the end of one.
    let end = end.find('/').and_then(|slash| end.get(slash..)).unwrap_or(end);
    format!("{dots}{end}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(shorten("/a/b/train.py", 20, "..."), "/a/b/train.py");
        assert_eq!(shorten("/very/long/way/to/train.py", 17, "..."), ".../to/train.py");
        let long = "/very/long/way/to/train.py:12 in step";
        assert_eq!(
            shorten(long, 30, "…"),
            "…/long/way/to/train.py:12 in step".replace("/long/way", "/way")
        );
        assert_eq!(shorten(&"x".repeat(40), 20, "…"), format!("…{}", "x".repeat(19)));
    }
}
