//! A reader of Markdown pages: tables, code blocks, links, headings.

use anyhow::{Context as _, Result};

/// The cells of one row of a table, trimmed.
pub type Row = Vec<String>;

/// The rows of the first table below the heading, without the table's head.
pub fn table(page: &str, heading: &str) -> Result<Vec<Row>> {
    let mut lines = page.lines().skip_while(|line| title(line) != Some(heading));
    lines.next().with_context(|| format!("the page has no heading \"{heading}\""))?;
    let rows: Vec<Row> = lines
        .take_while(|line| title(line).is_none())
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect();
    (!rows.is_empty()).then_some(rows).with_context(|| format!("there is no table below \"{heading}\""))
}

/// The rows of all tables of the page, without the heads.
pub fn tables(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut line_of_table = 0;
    for line in page.lines() {
        line_of_table = if line.starts_with('|') { line_of_table + 1 } else { 0 };
        if line_of_table > 2 {
            rows.push(cells(line));
        }
    }
    rows
}

fn cells(line: &str) -> Row {
    // `\|` is a bar inside a cell.
    let inner = line.trim().trim_start_matches('|').replace("\\|", "\u{0}");
    let inner = inner.strip_suffix('|').unwrap_or(&inner);
    inner.split('|').map(|cell| cell.replace('\u{0}', "|").trim().to_owned()).collect()
}

/// The text of a heading.
fn title(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    (rest.len() < line.len()).then(|| rest.strip_prefix(' ')).flatten().map(str::trim)
}

/// The texts between backquotes, in order.
pub fn code_words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The lines of all fenced code blocks.
pub fn code_lines(page: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            lines.push(line);
        }
    }
    lines
}

/// The fenced code blocks of a language, each as one text.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let head = format!("```{language}");
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        match &mut block {
            None if line.trim() == head => block = Some(String::new()),
            None => {}
            Some(_) if line.trim() == "```" => blocks.extend(block.take()),
            Some(text) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    blocks
}

/// The page without its fenced code blocks.
fn prose(page: &str) -> String {
    let mut inside = false;
    let mut text = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The targets of all links `[text](target)`.
pub fn links(page: &str) -> Vec<String> {
    let text = prose(page);
    let mut links = Vec::new();
    for paragraph in text.split("\n\n") {
        // Text between backquotes is never a link; the text of a link may be between backquotes.
        let plain: String = paragraph.split('`').step_by(2).collect();
        for (at, _) in plain.match_indices("](") {
            if let Some((target, _)) = plain[at + 2..].split_once(')') {
                links.push(target.to_owned());
            }
        }
    }
    links
}

/// The anchors that the headings of a page make.
pub fn anchors(page: &str) -> Vec<String> {
    let text = prose(page);
    text.lines().filter_map(title).map(anchor).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const PAGE: &str = "# One\n\n## A table\n\ntext\n\n| a | b |\n| --- | --- |\n| `x` | y \\| z |\n| 2 | |\n\n\
                        ## `Code`, more\n\n```\n# no heading\n[no](link)\n```\n[yes](one.md#one) `[no](x)` [`y`](two.md)\n";

    #[test]
    fn a_table_is_found_by_its_heading() {
        assert_eq!(table(PAGE, "A table").unwrap(), [["`x`", "y | z"], ["2", ""]]);
        assert_eq!(tables(PAGE).len(), 2);
        assert!(table(PAGE, "One").is_err());
        assert!(table(PAGE, "Two").is_err());
        assert_eq!(code_words("`a` or `b c`"), ["a", "b c"]);
    }

    #[test]
    fn code_is_neither_heading_nor_link() {
        assert_eq!(links(PAGE), ["one.md#one", "two.md"]);
        assert_eq!(anchors(PAGE), ["one", "a-table", "code-more"]);
        assert_eq!(code_lines(PAGE), ["# no heading", "[no](link)"]);
        assert_eq!(blocks("```a\n1\n2\n```\n```\n3\n```\n", "a"), ["1\n2\n"]);
    }
}
