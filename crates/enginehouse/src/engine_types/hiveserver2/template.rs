//! Command templates: words with placeholders such as `{port}`.
//!
//! Each word of a template stays one word of the command, whatever it is filled with: no shell reads it. `{{` and `}}` stand for
//! braces. A placeholder that does not exist is refused with the list, when the configuration is read.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use model::engine_name::EngineName;
use serde::{Deserialize, Serialize};

use crate::engine_types::child_server::CommandLine;

const MIB: u64 = 1 << 20;
/// The memory of a Java server beyond its heap: this part of its memory, and at least [`MIN_BEYOND_HEAP_MIB`].
const BEYOND_HEAP_DIVISOR: u64 = 10;
const MIN_BEYOND_HEAP_MIB: u64 = 384;
/// The word that is replaced by the arguments of all properties.
const PROPERTIES: &str = "{properties}";
/// The placeholder of the file with the properties.
const PROPERTIES_FILE: &str = "properties_file";

/// The template, as the configuration has it and as the master passes it to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TemplateText {
    pub command: Vec<String>,
    pub property_arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
}

/// A template that can be filled.
#[derive(Debug, Clone)]
pub struct CommandTemplate {
    words: Vec<Word>,
    property_arguments: Vec<Text<Property>>,
    environment: BTreeMap<String, Text<Values>>,
}

/// What placeholders are filled with.
#[derive(Debug, Clone)]
pub struct Values {
    /// Where the server must listen.
    pub address: SocketAddr,
    /// The folder of the server, its working directory.
    pub directory: PathBuf,
    /// The file with the properties.
    pub properties_file: PathBuf,
    pub cores: usize,
    pub memory_bytes: u64,
    pub engine: EngineName,
    pub tenant: String,
    pub pool: String,
    pub unit: String,
}

/// A property, for the placeholders of `property_arguments`.
#[derive(Debug, Clone)]
struct Property {
    key: String,
    value: String,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// Lower case, no full stop; names the key of the configuration.
    pub message: String,
    /// Whole sentences.
    pub hint: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nHint: {}", self.message, self.hint)
    }
}

/// A placeholder with what replaces it.
struct Placeholder<V: 'static> {
    name: &'static str,
    value: fn(&V) -> String,
}

/// The placeholders of commands and of the values of variables, in the order of the documentation.
static PLACEHOLDERS: [Placeholder<Values>; 12] = [
    Placeholder { name: "host", value: |values| values.address.ip().to_string() },
    Placeholder { name: "port", value: |values| values.address.port().to_string() },
    Placeholder { name: "directory", value: |values| values.directory.display().to_string() },
    Placeholder { name: PROPERTIES_FILE, value: |values| values.properties_file.display().to_string() },
    Placeholder { name: "cores", value: |values| values.cores.to_string() },
    Placeholder { name: "memory_bytes", value: |values| values.memory_bytes.to_string() },
    Placeholder { name: "memory_mib", value: |values| (values.memory_bytes / MIB).max(1).to_string() },
    Placeholder { name: "heap_mib", value: |values| heap_mib(values.memory_bytes).to_string() },
    Placeholder { name: "engine", value: |values| values.engine.to_string() },
    Placeholder { name: "tenant", value: |values| values.tenant.clone() },
    Placeholder { name: "pool", value: |values| values.pool.clone() },
    Placeholder { name: "unit", value: |values| values.unit.clone() },
];

/// The placeholders of `property_arguments`.
static OF_PROPERTY: [Placeholder<Property>; 2] = [
    Placeholder { name: "key", value: |property| property.key.clone() },
    Placeholder { name: "value", value: |property| property.value.clone() },
];

/// The heap of a Java server with this memory, which leaves some to the virtual machine itself: at least half of it.
fn heap_mib(memory_bytes: u64) -> u64 {
    let memory_mib = memory_bytes / MIB;
    let beyond = (memory_mib / BEYOND_HEAP_DIVISOR).max(MIN_BEYOND_HEAP_MIB);
    memory_mib.saturating_sub(beyond).max(memory_mib / 2).max(1)
}

#[derive(Debug, Clone)]
enum Word {
    One(Text<Values>),
    /// The arguments of all properties.
    Properties,
}

/// A text with placeholders.
#[derive(Debug, Clone)]
struct Text<V>(Vec<Piece<V>>);

#[derive(Debug, Clone)]
enum Piece<V> {
    Literal(String),
    Filled { name: &'static str, value: fn(&V) -> String },
}

impl<V> Text<V> {
    /// `place` is the key in messages, such as `hiveserver2.command`.
    fn parse(place: &str, text: &str, known: &'static [Placeholder<V>]) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let name = after.split_once('}').filter(|_| brace == "{");
            let Some((name, after)) = name else {
                return Err(TemplateError {
                    message: format!("{place} has a single \"{brace}\" in \"{text}\""),
                    hint: format!("Write {brace}{brace} for a brace."),
                });
            };
            let Some(placeholder) = known.iter().find(|placeholder| placeholder.name == name) else {
                return Err(unknown(place, name, known));
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Filled { name: placeholder.name, value: placeholder.value });
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    fn fill(&self, values: &V) -> String {
        let piece = |piece: &Piece<V>| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Filled { value, .. } => value(values),
        };
        self.0.iter().map(piece).collect()
    }

    fn has(&self, wanted: &str) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Filled { name, .. } if *name == wanted))
    }

    fn is_literal(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Literal(_)))
    }
}

fn unknown<V>(place: &str, name: &str, known: &[Placeholder<V>]) -> TemplateError {
    let names: Vec<String> = known.iter().map(|placeholder| format!("{{{}}}", placeholder.name)).collect();
    let is_all = format!("{{{name}}}") == PROPERTIES;
    let alone = if is_all { " {properties} must be a word of its own in command." } else { "" };
    TemplateError {
        message: format!("{place} has the unknown placeholder \"{{{name}}}\""),
        hint: format!("The placeholders are {}; write {{{{ and }}}} for braces.{alone}", names.join(", ")),
    }
}

impl CommandTemplate {
    /// `section` is the name of the section in messages. The command has at least one word.
    pub fn parse(section: &str, text: &TemplateText) -> Result<Self, TemplateError> {
        let place = |key: &str| format!("{section}.{key}");
        let mut words = Vec::new();
        for word in &text.command {
            words.push(if word == PROPERTIES {
                Word::Properties
            } else {
                Word::One(Text::parse(&place("command"), word, &PLACEHOLDERS)?)
            });
        }
        let program = text.command.first().map_or("", String::as_str);
        let is_literal = matches!(words.first(), Some(Word::One(word)) if word.is_literal());
        if !is_literal || !program.starts_with('/') {
            return Err(TemplateError {
                message: format!("{} begins with \"{program}\", which is not a program", place("command")),
                hint: "The first word is an absolute path without placeholders.".to_owned(),
            });
        }
        let arguments = text.property_arguments.iter();
        let property_arguments: Vec<Text<Property>> = arguments
            .map(|word| Text::parse(&place("property_arguments"), word, &OF_PROPERTY))
            .collect::<Result<_, _>>()?;
        let has_word = words.iter().any(|word| matches!(word, Word::Properties));
        if has_word == property_arguments.is_empty() {
            return Err(TemplateError {
                message: format!("{} and {PROPERTIES} must be used together", place("property_arguments")),
                hint: format!(
                    "The word {PROPERTIES} of command is replaced by property_arguments, once for each property."
                ),
            });
        }
        let mut environment = BTreeMap::new();
        for (name, value) in &text.environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(TemplateError {
                    message: format!("{} has \"{name}\", which is not the name of a variable", place("environment")),
                    hint: "A name is not empty and has no \"=\".".to_owned(),
                });
            }
            let value = Text::parse(&format!("{}.{name}", place("environment")), value, &PLACEHOLDERS)?;
            environment.insert(name.clone(), value);
        }
        Ok(Self { words, property_arguments, environment })
    }

    /// Whether the properties are arguments, which other users of the machine can read.
    pub fn has_property_arguments(&self) -> bool {
        !self.property_arguments.is_empty()
    }

    /// Whether the properties are in a file, which only the engine's user can read.
    pub fn has_properties_file(&self) -> bool {
        let words = self.words.iter().filter_map(|word| match word {
            Word::One(text) => Some(text),
            Word::Properties => None,
        });
        words.chain(self.environment.values()).any(|text| text.has(PROPERTIES_FILE))
    }

    pub fn fill(&self, values: &Values, properties: &BTreeMap<String, String>) -> CommandLine {
        let mut words = Vec::new();
        for word in &self.words {
            match word {
                Word::One(text) => words.push(text.fill(values)),
                Word::Properties => {
                    for (key, value) in properties {
                        let property = Property { key: key.clone(), value: value.clone() };
                        words.extend(self.property_arguments.iter().map(|word| word.fill(&property)));
                    }
                }
            }
        }
        let environment = self.environment.iter().map(|(name, text)| (name.clone(), text.fill(values))).collect();
        CommandLine { words, environment }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn text(command: &[&str], property_arguments: &[&str], environment: &[(&str, &str)]) -> TemplateText {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        TemplateText {
            command: owned(command),
            property_arguments: owned(property_arguments),
            environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }
    }

    fn values(memory_bytes: u64) -> Values {
        Values {
            address: SocketAddr::from(([127, 0, 0, 1], 10_000)),
            directory: PathBuf::from("/d"),
            properties_file: PathBuf::from("/d/properties"),
            cores: 2,
            memory_bytes,
            engine: EngineName::new("t-1-0-1").unwrap(),
            tenant: "t_1".to_owned(),
            pool: "rp_1".to_owned(),
            unit: "uc_1".to_owned(),
        }
    }

    fn filled(template: &TemplateText, properties: &[(&str, &str)]) -> CommandLine {
        let properties = properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        CommandTemplate::parse("hiveserver2", template).unwrap().fill(&values(4 << 30), &properties)
    }

    fn refused(template: &TemplateText) -> String {
        CommandTemplate::parse("hiveserver2", template).unwrap_err().to_string()
    }

    #[test]
    fn every_placeholder_is_filled() {
        let command =
            ["/bin/s", "{host}:{port}", "--mem={memory_mib}m", "-Xmx{heap_mib}m", "{cores}", "{memory_bytes}"];
        let environment =
            [("WHO", "{engine} {tenant}/{pool}/{unit}"), ("DIR", "{directory}"), ("P", "{properties_file}")];
        let line = filled(&text(&command, &[], &environment), &[]);
        assert_eq!(line.words, ["/bin/s", "127.0.0.1:10000", "--mem=4096m", "-Xmx3687m", "2", "4294967296"]);
        let environment: Vec<_> = line.environment.values().map(String::as_str).collect();
        assert_eq!(environment, ["/d", "/d/properties", "t-1-0-1 t_1/rp_1/uc_1"]);
    }

    #[test]
    fn doubled_braces_are_literal() {
        let line = filled(&text(&["/bin/s", "{{port}}={port}", "{{{cores}}}", "a{{", "}}"], &[], &[]), &[]);
        assert_eq!(line.words, ["/bin/s", "{port}=10000", "{2}", "a{", "}"]);
    }

    #[test]
    fn a_property_is_a_group_of_whole_words() {
        let template = text(&["/bin/s", "{properties}", "end"], &["--conf", "{key}={value}"], &[]);
        let line = filled(&template, &[("a", "1 --evil"), ("b", "{port} $(x)")]);
        assert_eq!(line.words, ["/bin/s", "--conf", "a=1 --evil", "--conf", "b={port} $(x)", "end"]);
        assert_eq!(filled(&template, &[]).words, ["/bin/s", "end"]);
    }

    #[test]
    fn what_is_no_template_is_refused_with_its_key_and_a_remedy() {
        for (template, parts) in [
            (text(&[], &[], &[]), ["hiveserver2.command begins with \"\"", "absolute path"]),
            (text(&["s"], &[], &[]), ["\"s\", which is not a program", "absolute path"]),
            (text(&["/bin/{engine}"], &[], &[]), ["is not a program", "without placeholders"]),
            (text(&["/s", "{prot}"], &[], &[]), ["unknown placeholder \"{prot}\"", "{host}, {port}, {directory}"]),
            (text(&["/s", "{}"], &[], &[]), ["unknown placeholder \"{}\"", "{unit}; write {{ and }} for braces"]),
            (text(&["/s", "{port"], &[], &[]), ["a single \"{\" in \"{port\"", "Write {{"]),
            (text(&["/s", "port}"], &[], &[]), ["a single \"}\"", "Write }}"]),
            (text(&["/s", "x{properties}"], &["{key}"], &[]), ["\"{properties}\"", "a word of its own"]),
            (text(&["/s", "{key}"], &[], &[]), ["hiveserver2.command", "\"{key}\""]),
            (text(&["/s", "{properties}"], &[], &[]), ["must be used together", "once for each property"]),
            (text(&["/s"], &["{key}"], &[]), ["hiveserver2.property_arguments", "used together"]),
            (text(&["/s", "{properties}"], &["{port}"], &[]), ["property_arguments", "are {key}, {value};"]),
            (text(&["/s"], &[], &[("A", "{x}")]), ["hiveserver2.environment.A", "\"{x}\""]),
            (text(&["/s"], &[], &[("A=B", "")]), ["hiveserver2.environment", "\"A=B\""]),
        ] {
            let error = refused(&template);
            assert!(parts.iter().all(|part| error.contains(part)), "{template:?}: {error}");
        }
    }

    #[test]
    fn a_heap_leaves_memory_for_the_virtual_machine() {
        for (memory_mib, expected) in [(0, 1), (1, 1), (512, 256), (1_024, 640), (4_096, 3_687), (20_480, 18_432)] {
            assert_eq!(heap_mib(memory_mib * MIB), expected, "{memory_mib}");
        }
    }

    #[test]
    fn a_template_states_how_it_passes_properties() {
        let parse = |template: &TemplateText| CommandTemplate::parse("hiveserver2", template).unwrap();
        let arguments = parse(&text(&["/s", "{properties}"], &["{key}"], &[]));
        assert_eq!((arguments.has_property_arguments(), arguments.has_properties_file()), (true, false));
        for file in [text(&["/s", "-f={properties_file}"], &[], &[]), text(&["/s"], &[], &[("F", "{properties_file}")])]
        {
            assert_eq!((parse(&file).has_property_arguments(), parse(&file).has_properties_file()), (false, true));
        }
    }
}
