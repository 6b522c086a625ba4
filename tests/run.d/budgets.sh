# How long each part of a tier may take on two cores, in seconds of wall clock. Sourced by tests/run.
#
# A budget fails nothing: machines differ. It is what the closing table compares with, so that a part that grows is seen
# on the day that it grows. The sums are what each tier promises: 10 minutes of tests for --quick, 45 minutes from cold
# for the whole, and 8 more on a machine that hasn't built Kubernetes yet. --long has no budget beyond the default tier's parts: it takes what its limits say.

# budget TIER PART: prints its seconds, or nothing if there is none.
budget() {
    case "$1:$2" in
        *:build) echo 900 ;;
        *:install) echo 240 ;;
        *:"build Kubernetes") echo 480 ;;
        long:"build 0.1.0") echo 1200 ;;
        long:"build with TLS to ZooKeeper") echo 600 ;;
        quick:"rust, without servers") echo 300 ;;
        quick:scenarios) echo 240 ;;
        default:servers) echo 45 ;;
        default:rust) echo 360 ;;
        default:scripts) echo 60 ;;
        default:"failpoint matrix") echo 300 ;;
        default:"scenarios, in parallel") echo 600 ;;
        default:"scenarios, one at a time") echo 360 ;;
    esac
}
