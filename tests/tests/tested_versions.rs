//! The page of tested versions, compared with the files that pin them.

#![allow(clippy::unwrap_used, clippy::panic)]

use tests::page::{self, code_words};
use tests::repository::read;

const PAGE: &str = "docs/tested-versions.md";
/// The release of Debian whose packages have the versions of the page.
const DEBIAN: &str = "of Debian 12";

#[test]
fn each_version_is_the_one_that_a_file_pins() {
    let rows = page::table(&read(PAGE).unwrap(), "Tested versions").unwrap();
    for row in &rows {
        let [what, version, file, pinned] = &row[..] else { panic!("{row:?} has not four columns") };
        let (file, pin) = (code_words(file)[0], code_words(pinned)[0]);
        let text = read(file).unwrap();
        let words = || text.split(|c: char| c.is_whitespace() || "()\"',+=[]".contains(c));
        let is_pinned = if pinned.ends_with(DEBIAN) { words().any(|word| word == pin) } else { text.contains(pin) };
        assert!(is_pinned, "{what}: {file} has no {pin}");
        // What comes with another program has the version of the page alone.
        let is_own = pin.contains(version.as_str()) || pinned.ends_with(DEBIAN) || what.ends_with("contains them");
        assert!(is_own, "{what}: {version} is not what {pin} says");
    }
    assert!(read("tests/run").unwrap().contains("Needs Debian 12"), "the tests need another release of Debian");
}
