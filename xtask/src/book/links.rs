//! Links and headings of a Markdown page, as far as our pages use the language: inline links, and headings that begin
//! with `#`. Blocks of code and code in a line have neither.

use std::ops::Range;

/// `[text](target)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link<'a> {
    /// From the first bracket to the last.
    pub place: Range<usize>,
    /// What readers see of it.
    pub text: &'a str,
    /// Where it leads.
    pub target: &'a str,
}

impl<'a> Link<'a> {
    /// The file that it names, and the heading in that file. Neither for an address of the web.
    pub fn file_and_heading(&self) -> Option<(&'a str, Option<&'a str>)> {
        if self.target.contains("://") || self.target.starts_with("mailto:") {
            return None;
        }
        Some(match self.target.split_once('#') {
            Some((file, heading)) => (file, Some(heading)),
            None => (self.target, None),
        })
    }
}

/// The lines of `page` that are no code, each with the place where it begins.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut place = 0;
    let mut is_code = false;
    page.split_inclusive('\n').filter_map(move |line| {
        let begin = place;
        place += line.len();
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code).then_some((begin, line))
    })
}

/// All links of `page`.
pub fn links(page: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    // The ticks that began the code we are in, and those that stand directly in front of us.
    let (mut code, mut ticks) = (0, 0);
    let mut opened: Vec<usize> = Vec::new();
    for (begin, line) in prose(page) {
        if line.trim().is_empty() {
            // Code and the text of a link may go on in the next line, but not in the next paragraph.
            (code, ticks) = (0, 0);
            opened.clear();
        }
        for (offset, character) in line.char_indices() {
            let place = begin + offset;
            if character == '`' {
                ticks += 1;
                continue;
            }
            match std::mem::take(&mut ticks) {
                0 => {}
                begun if code == 0 => code = begun,
                ended if code == ended => code = 0,
                _ => {}
            }
            match character {
                '[' if code == 0 => opened.push(place),
                ']' if code == 0 => {
                    let Some(bracket) = opened.pop() else { continue };
                    let behind = &page[place + 1..];
                    let Some(target) = behind.strip_prefix('(').and_then(|behind| behind.split_once(')')) else {
                        continue;
                    };
                    let end = place + 1 + target.0.len() + 2;
                    links.push(Link { place: bracket..end, text: &page[bracket + 1..place], target: target.0 });
                }
                _ => {}
            }
        }
    }
    links
}

#[cfg(test)]
/// What a link behind `#` may name in `page`: its headings, as GitHub and mdBook write them.
pub fn headings(page: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut headings = Vec::new();
    for (_, line) in prose(page) {
        let text = line.trim_start_matches('#');
        if text.len() == line.len() || !text.starts_with(' ') {
            continue;
        }
        let name: String = text
            .trim()
            .chars()
            .filter_map(|character| match character {
                ' ' => Some('-'),
                '-' | '_' => Some(character),
                _ => character.is_alphanumeric().then_some(character),
            })
            .flat_map(char::to_lowercase)
            .collect();
        let same = names.iter().filter(|other| **other == name).count();
        headings.push(if same == 0 { name.clone() } else { format!("{name}-{same}") });
        names.push(name);
    }
    headings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page =
            "[a](b.md) and [`c[0]`\nd](e.md#f), ``[no](x)``\n\n```sh\n[no](x)\n```\n`open [no](x)\n\n[g](https://h/)";
        let found: Vec<(&str, &str)> = links(page).iter().map(|link| (link.text, link.target)).collect();
        assert_eq!(found, [("a", "b.md"), ("`c[0]`\nd", "e.md#f"), ("g", "https://h/")]);
        assert!(links(page).iter().all(|link| page[link.place.clone()] == format!("[{}]({})", link.text, link.target)));
    }

    #[test]
    fn a_link_names_a_file_and_a_heading() {
        let of = |page: &'static str| links(page)[0].file_and_heading();
        assert_eq!(of("[a](b.md#c)"), Some(("b.md", Some("c"))));
        assert_eq!(of("[a](b)"), Some(("b", None)));
        assert_eq!(of("[a](#c)"), Some(("", Some("c"))));
        assert_eq!(of("[a](https://b/#c)"), None);
    }

    #[test]
    fn headings_are_named_as_github_and_mdbook_name_them() {
        let page = "# One two\n## `trace:FILE`\n```sh\n# no\n```\n#no\n## A, b-c: *d*\n## A b-c d\n## a b-c d\n";
        assert_eq!(headings(page), ["one-two", "tracefile", "a-b-c-d", "a-b-c-d-1", "a-b-c-d-2"]);
    }
}
