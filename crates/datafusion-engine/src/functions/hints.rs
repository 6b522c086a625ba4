//! Hints for calls of functions that do not exist.

use datafusion::common::utils::datafusion_strsim::levenshtein;

/// Functions of other systems, and their replacements.
const INSTEAD: &[(&str, &str)] = &[
    ("bround", "round"),
    ("date_trunc_month", "date_trunc"),
    ("dateadd", "date_add"),
    ("explode_outer", "explode"),
    ("from_json", "get_json_object"),
    ("getdate", "now"),
    ("group_concat", "array_join(collect_list(x), ',')"),
    ("hash", "xxhash64"),
    ("isnan", "x = CAST('NaN' AS DOUBLE)"),
    ("json_extract", "get_json_object"),
    ("json_extract_scalar", "get_json_object"),
    ("json_value", "get_json_object"),
    ("posexplode", "explode"),
    ("strftime", "date_format"),
    ("str_to_date", "to_date"),
    ("sysdate", "now"),
    ("to_varchar", "to_char"),
    ("unhex_string", "unhex"),
];

/// The hint for a function that does not exist, if there is a useful one. `nearest` is the existing name with the most
/// similar spelling.
pub fn hint(name: &str, nearest: Option<&str>) -> Option<String> {
    let name = name.to_ascii_lowercase();
    if let Some((_, instead)) = INSTEAD.iter().find(|(other, _)| *other == name) {
        return Some(format!("Use {instead}."));
    }
    let nearest = nearest?;
    // Only a typing error counts as near: one letter in four, and none in the shortest names.
    let allowed = name.chars().count() / 4;
    (levenshtein(&name, nearest) <= allowed).then(|| format!("Did you mean {nearest}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_close_name_or_a_known_one_is_suggested() {
        assert_eq!(hint("if", Some("sin")), None);
        assert_eq!(hint("get_json_objekt", Some("get_json_object")).as_deref(), Some("Did you mean get_json_object?"));
        assert_eq!(hint("Group_Concat", Some("concat")).as_deref(), Some("Use array_join(collect_list(x), ',')."));
        assert_eq!(hint("collect", Some("nullif")), None);
    }
}
