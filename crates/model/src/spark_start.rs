//! A classifier of Spark drivers that did not start: from the exit code and the end of the log, whether the same start may
//! succeed later.
//!
//! The exit code alone decides little: nearly every failure of a driver has code 1, an unknown class as well as a metastore that
//! is down. The log names the cause, in one of three forms: the exception that ended the main thread, the report of the server
//! that it did not start, or a message of `spark-submit` and the Java virtual machine before Spark runs. Only causes of the
//! named list [`HOPELESS`] are final; what is not recognized is retryable, and so is every failure of which a part of the
//! machine or the network may be the cause (`TRANSIENT`), whatever exception wraps that.
//!
//! The log may be cut at its beginning: a kubelet keeps 2 KiB. A trace whose first line is lost still ends with its innermost
//! cause, if it has any.
//!
//! Texts and codes are those of Spark 3.5 and 4.0 with Java 17; the tests have the real outputs.

use crate::end::StartFault;

/// A cause that a repetition does not remove.
#[derive(Debug, PartialEq, Eq)]
pub struct Hopeless {
    pub name: &'static str,
    pub fault: StartFault,
    /// What removes it. Lower case, no full stop.
    pub remedy: &'static str,
    codes: &'static [i32],
    /// Classes of the innermost exception.
    classes: &'static [&'static str],
    /// Parts of the failure's text.
    texts: &'static [&'static str],
}

/// The causes that are final. The first one that matches counts.
pub static HOPELESS: [Hopeless; 8] = [
    Hopeless {
        name: "out of memory",
        fault: StartFault::OutOfMemory,
        remedy: "raise DRIVER_MEMORY of the resource unit",
        // SparkExitCode.OOM.
        codes: &[52],
        classes: &[],
        texts: &[
            "java.lang.OutOfMemoryError: Java heap space",
            "java.lang.OutOfMemoryError: GC overhead limit exceeded",
            "java.lang.OutOfMemoryError: Metaspace",
            "java.lang.OutOfMemoryError: Compressed class space",
            "java.lang.OutOfMemoryError thrown from the UncaughtExceptionHandler",
        ],
    },
    Hopeless {
        name: "no Java",
        fault: StartFault::Configuration,
        remedy: "set JAVA_HOME in spark.environment, or use an image with Java",
        // A shell's codes for a program that is not there or cannot be run.
        codes: &[126, 127],
        classes: &[],
        texts: &["JAVA_HOME is not set"],
    },
    Hopeless {
        name: "invalid options of Java or spark-submit",
        fault: StartFault::Configuration,
        remedy: "correct the options of the driver in PROPERTIES of the resource unit or in spark.properties",
        codes: &[],
        classes: &[],
        texts: &[
            "Error: Could not create the Java Virtual Machine.",
            "agent library failed to init",
            "Could not find agent library",
            // The beginning and the end of the help that follows an invalid option.
            "Usage: spark-submit [options]",
            "--queue QUEUE_NAME",
        ],
    },
    Hopeless {
        name: "unknown class",
        fault: StartFault::Configuration,
        remedy: "correct the name of the class in PROPERTIES of the resource unit or in spark.properties, or add its library \
                 to Spark's folder jars",
        // SparkExitCode.CLASS_NOT_FOUND: the main class.
        codes: &[101],
        classes: &[
            "java.lang.ClassNotFoundException",
            "java.lang.NoClassDefFoundError",
            "org.datanucleus.store.rdbms.connectionpool.DatastoreDriverNotFoundException",
        ],
        texts: &["Error: Could not find or load main class", "was not found in the CLASSPATH"],
    },
    Hopeless {
        name: "incompatible library",
        fault: StartFault::Configuration,
        remedy: "use libraries and a Java that fit the version of Spark",
        codes: &[],
        classes: &[
            "java.lang.UnsupportedClassVersionError",
            "java.lang.NoSuchMethodError",
            "java.lang.NoSuchFieldError",
            "java.lang.AbstractMethodError",
            "java.lang.IncompatibleClassChangeError",
        ],
        texts: &["Error: LinkageError occurred while loading main class"],
    },
    Hopeless {
        name: "missing permission",
        fault: StartFault::Configuration,
        remedy: "grant the permission to the account of the engine",
        codes: &[],
        classes: &["java.nio.file.AccessDeniedException", "org.apache.hadoop.security.AccessControlException"],
        // The reply of a Kubernetes API server. One about a quota of a namespace names no user.
        texts: &["is forbidden: User ", "(Permission denied)"],
    },
    Hopeless {
        name: "missing file",
        fault: StartFault::Configuration,
        remedy: "create the file or folder, or correct its name in PROPERTIES of the resource unit or in spark.properties",
        codes: &[],
        classes: &["java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"],
        texts: &[],
    },
    Hopeless {
        name: "invalid value of a property",
        fault: StartFault::Configuration,
        remedy: "correct the value in PROPERTIES of the resource unit or in spark.properties",
        codes: &[],
        classes: &[
            "java.lang.IllegalArgumentException",
            "java.lang.NumberFormatException",
            "org.apache.spark.SparkIllegalArgumentException",
            "org.apache.spark.SparkNumberFormatException",
            "org.apache.hadoop.fs.UnsupportedFileSystemException",
        ],
        texts: &[
            // spark-submit has refused its properties.
            "at org.apache.spark.deploy.SparkSubmit.error(",
            "at org.apache.spark.deploy.SparkSubmitArguments.error(",
            "SparkException: Could not parse Master URL",
            "SparkException: A master URL must be set in your configuration",
        ],
    },
];

/// Parts of a failure that may be over when the start is repeated.
const TRANSIENT: [&str; 18] = [
    "Address already in use",
    "java.net.BindException",
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
    "java.util.concurrent.TimeoutException",
    "Cannot allocate memory",
    "Communications link failure",
    "Connection refused",
    "Could not connect to meta store",
    "No space left on device",
    "Resource temporarily unavailable",
    "Service Unavailable",
    "Too Many Requests",
    "Too many open files",
    "unable to create native thread",
];

/// The beginning of the exception that ended the main thread. The virtual machine prints it, not the logger.
const MAIN_EXCEPTION: &str = "Exception in thread \"main\" ";
/// The server's report that it did not start; its exception follows.
const SERVER_REPORT: &str = "Error starting HiveThriftServer2";
/// Logs lines after the main thread has ended.
const SHUTDOWN_HOOKS: &str = "ShutdownHookManager";
const CAUSED_BY: &str = "Caused by: ";
/// 128 and the number of SIGKILL or SIGTERM.
const KILLED: [i32; 2] = [137, 143];

/// Why a driver that ended by this exit code, or by a signal, cannot start; `None` if it may start later. `log` is the end of its
/// log.
pub fn hopeless(code: Option<i32>, signal: Option<i32>, log: &str) -> Option<&'static Hopeless> {
    let code = code.filter(|code| *code != 0 && !KILLED.contains(code) && signal.is_none())?;
    let exception = exception(log);
    // Before Spark runs, its logger does not write, and messages are few.
    let failure = exception.unwrap_or(log);
    if TRANSIENT.iter().any(|text| failure.contains(text)) {
        return None;
    }
    let class = exception.and_then(innermost).map(|cause| cause.split(':').next().unwrap_or(cause).trim_end());
    HOPELESS.iter().find(|hopeless| {
        hopeless.codes.contains(&code)
            || class.is_some_and(|class| hopeless.classes.contains(&class))
            || hopeless.texts.iter().any(|text| failure.contains(text))
    })
}

/// The innermost exception that ended the driver, with its message, if the log has it.
pub fn cause(log: &str) -> Option<&str> {
    innermost(exception(log)?)
}

/// The log from the exception that ended the driver on.
fn exception(log: &str) -> Option<&str> {
    let from = |text: &str| log.rfind(text).map(|at| &log[at..]);
    from(MAIN_EXCEPTION).or_else(|| from(SERVER_REPORT)).or_else(|| trailing_trace(log))
}

/// The end of a trace without its first line. Only the trace of the main thread is followed by nothing but shutdown hooks.
fn trailing_trace(log: &str) -> Option<&str> {
    let is_trace = |line: &&str| line.starts_with('\t') || line.starts_with(CAUSED_BY);
    let length = |lines: &mut dyn Iterator<Item = &str>| lines.map(str::len).sum::<usize>();
    let lines = || log.split_inclusive('\n').rev();
    let after = length(&mut lines().take_while(|line| line.contains(SHUTDOWN_HOOKS) || line.trim().is_empty()));
    let log = &log[..log.len() - after];
    let trace = length(&mut log.split_inclusive('\n').rev().take_while(is_trace));
    (trace > 0).then(|| &log[log.len() - trace..])
}

/// The innermost cause of the first exception. Its trace ends with the first line that is none of it.
fn innermost(exception: &str) -> Option<&str> {
    let (mut cause, mut has_frames) = (None, false);
    for line in exception.lines() {
        if let Some(inner) = line.strip_prefix(CAUSED_BY) {
            (cause, has_frames) = (Some(inner), false);
        } else if line.starts_with('\t') {
            has_frames = true;
        } else if has_frames {
            break;
        } else if cause.is_none() {
            cause = line.strip_prefix(MAIN_EXCEPTION).or_else(|| is_exception(line).then_some(line));
        }
    }
    cause.map(str::trim_end).filter(|cause| !cause.is_empty())
}

/// Whether the line begins with the class of an exception.
fn is_exception(line: &str) -> bool {
    let class = line.split(':').next().unwrap_or(line);
    class.contains('.') && class.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$'))
}

#[cfg(test)]
mod tests;
