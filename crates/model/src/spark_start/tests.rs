//! Real outputs of Spark's server, of which each file has the end: from the failure on.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;

/// What a kubelet keeps of a log.
const KEPT_BYTES: usize = 2_048;

/// The name of a hopeless cause, or that the start may succeed later.
type Judgement = Option<&'static str>;

/// Version and file, exit code, the judgement by the whole end of the log, and that by what a kubelet keeps of it.
#[rustfmt::skip]
const TABLE: &[(&str, i32, Judgement, Judgement)] = &[
    ("3.5/serializer", 1, Some("unknown class"), None),
    ("3.5/listener", 1, Some("unknown class"), Some("unknown class")),
    ("3.5/s3", 1, Some("unknown class"), Some("unknown class")),
    ("3.5/jdbc_driver", 1, Some("unknown class"), Some("unknown class")),
    ("3.5/master", 1, Some("invalid value of a property"), Some("invalid value of a property")),
    ("3.5/cores", 1, Some("invalid value of a property"), Some("invalid value of a property")),
    ("3.5/sql_value", 1, Some("invalid value of a property"), None),
    ("3.5/memory_small", 1, Some("invalid value of a property"), None),
    ("3.5/timeout", 1, Some("invalid value of a property"), None),
    ("3.5/memory_invalid", 1, Some("invalid options of Java or spark-submit"), Some("invalid options of Java or spark-submit")),
    ("3.5/jvm_xmx", 1, Some("invalid options of Java or spark-submit"), Some("invalid options of Java or spark-submit")),
    ("3.5/file_missing", 1, Some("missing file"), None),
    ("3.5/oom", 1, Some("out of memory"), Some("out of memory")),
    // What these lack may be there later.
    ("3.5/memory_huge", 1, None, None),
    ("3.5/used_port", 255, None, None),
    ("3.5/bind", 1, None, None),
    ("3.5/jar_hdfs", 1, None, None),
    ("3.5/packages", 1, None, None),
    ("3.5/metastore_down", 1, None, None),
    ("3.5/local_dir", 53, None, None),
    ("4.0/serializer", 1, Some("unknown class"), None),
    ("4.0/listener", 1, Some("unknown class"), Some("unknown class")),
    ("4.0/master", 1, Some("invalid value of a property"), Some("invalid value of a property")),
    ("4.0/memory_small", 1, Some("invalid value of a property"), None),
    ("4.0/timeout", 1, Some("invalid value of a property"), None),
    ("4.0/file_missing", 1, Some("missing file"), None),
    ("4.0/used_port", 255, None, None),
    ("4.0/jar_hdfs", 1, None, None),
];

fn log(file: &str) -> String {
    let outputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/spark_start/outputs");
    std::fs::read_to_string(outputs.join(format!("{file}.txt"))).unwrap()
}

/// The end of the text as a kubelet cuts it.
fn kept(log: &str) -> &str {
    crate::text::tail(log, KEPT_BYTES)
}

fn judged(code: i32, log: &str) -> Judgement {
    hopeless(Some(code), None, log).map(|hopeless| hopeless.name)
}

#[test]
fn real_failures_of_spark_are_final_or_not() {
    let found: Vec<_> = TABLE
        .iter()
        .map(|(file, code, ..)| {
            let log = log(file);
            (*file, *code, judged(*code, &log), judged(*code, kept(&log)))
        })
        .collect();
    assert_eq!(found, TABLE);
}

/// A killed Spark may have logged anything before.
#[test]
fn a_signal_or_a_success_is_never_final() {
    let log = log("3.5/serializer");
    for (code, signal) in [(Some(143), None), (Some(137), None), (Some(0), None), (None, Some(9)), (None, None)] {
        assert_eq!(hopeless(code, signal, &log), None, "{code:?} {signal:?}");
    }
}

#[test]
fn the_cause_is_the_innermost_one_of_what_ended_the_driver() {
    for (file, expected) in [
        ("3.5/serializer", Some("java.lang.ClassNotFoundException: no.such.Serializer")),
        ("3.5/s3", Some("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found")),
        ("3.5/used_port", Some("java.net.BindException: Address already in use")),
        ("3.5/jar_hdfs", Some("java.net.UnknownHostException: nohost.invalid")),
        ("3.5/memory_invalid", None),
    ] {
        assert_eq!(cause(&log(file)), expected, "{file}");
    }
    // The first line is lost, and an inner cause is not.
    assert_eq!(cause(kept(&log("3.5/serializer"))), None);
    let listener = Some("java.lang.ClassNotFoundException: no.such.Listener");
    assert_eq!(cause(kept(&log("3.5/listener"))), listener);
}

/// Only the exception that ended the main thread decides: others were caught, by Spark or by its shutdown.
#[test]
fn an_exception_that_was_only_logged_is_no_cause() {
    let warned = "WARN SparkSession: Cannot use no.such.Extension\njava.lang.ClassNotFoundException: no.such.Extension\n\tat a.b(C)\n";
    let main = "Exception in thread \"main\" a.b.CException: d\n\tat a.b(C)\n";
    let hook =
        "ERROR ShutdownHookManager: Exception while deleting\njava.nio.file.NoSuchFileException: /x\n\tat a.b(C)\n";
    for log in [format!("{warned}INFO going on\n"), format!("{warned}{main}"), format!("{main}{hook}")] {
        assert_eq!(judged(1, &log), None, "{log}");
    }
}

#[test]
fn what_may_be_over_later_outweighs_the_exception_that_wraps_it() {
    let wrapped = |inner: &str| {
        format!(
            "Exception in thread \"main\" java.lang.IllegalArgumentException: x\n\tat a.b(C)\nCaused by: {inner}\n\tat a.b(C)\n"
        )
    };
    for inner in TRANSIENT {
        assert_eq!(judged(1, &wrapped(inner)), None, "{inner}");
        assert_eq!(judged(52, &wrapped(inner)), None, "{inner}");
    }
    assert_eq!(judged(1, &wrapped("java.lang.NumberFormatException: abc")), Some("invalid value of a property"));
}

#[test]
fn codes_and_texts_that_no_file_shows() {
    let main = |text: &str| format!("Exception in thread \"main\" {text}\n\tat a.b(C)\n");
    for (code, log, expected) in [
        (52, String::new(), "out of memory"),
        (101, "Error: Failed to load class x.Y.\n".to_owned(), "unknown class"),
        (127, "spark-class: line 71: /nowhere/bin/java: No such file or directory\n".to_owned(), "no Java"),
        (1, "JAVA_HOME is not set\n".to_owned(), "no Java"),
        (
            1,
            main("java.lang.UnsupportedClassVersionError: x has been compiled by a more recent version"),
            "incompatible library",
        ),
        (1, main("org.apache.hadoop.security.AccessControlException: Permission denied: user=x"), "missing permission"),
        (1, main("java.io.FileNotFoundException: /x (Permission denied)"), "missing permission"),
        (
            1,
            main(
                "io.fabric8.kubernetes.client.KubernetesClientException: Message: pods \"x\" is forbidden: User \"u\" cannot get",
            ),
            "missing permission",
        ),
        (1, main("java.lang.OutOfMemoryError: Java heap space"), "out of memory"),
        (1, main("org.apache.spark.SparkException: Could not parse Master URL: 'x'"), "invalid value of a property"),
    ] {
        assert_eq!(judged(code, &log), Some(expected), "{code} {log}");
    }
    // A quota of the namespace may have capacity later.
    assert_eq!(judged(1, &main("x.YException: pods \"x\" is forbidden: exceeded quota: q")), None);
    assert_eq!(judged(1, &main("java.lang.OutOfMemoryError: unable to create native thread")), None);
}

#[test]
fn every_cause_is_of_a_class_that_is_not_retryable() {
    for hopeless in &HOPELESS {
        assert!(!hopeless.fault.is_retryable(), "{hopeless:?}");
        assert!(!hopeless.remedy.ends_with('.') && hopeless.remedy.starts_with(char::is_lowercase), "{hopeless:?}");
    }
}
