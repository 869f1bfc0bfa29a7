# Waits until the other end of its input is closed. Then it kills the processes whose environment has
# the mark $2, and the processes in control groups whose names begin with $1, below the directories in
# the further arguments, and removes these groups. A line of input that begins with / names a directory;
# its subdirectories whose names begin with $1 are removed as well. A line "+N IDENTITY PATH" names a
# placeholder, which is removed too, and a line "-N" says that it is gone.
name=$1
mark=$2
shift 2
count=0
slots=0
while IFS= read -r line; do
  case $line in
    /*)
      count=$((count + 1))
      eval "place$count=\$line"
      ;;
    +*)
      slot=${line%% *}
      slot=${slot#+}
      [ "$slot" -le $slots ] || slots=$slot
      eval "file$slot=\${line#* }"
      ;;
    -*) unset "file${line#-}" ;;
  esac
done

end() {
  # In version 1, frozen processes cannot be killed.
  [ -e "$1/freezer.state" ] && echo THAWED > "$1/freezer.state"
  for below in "$1"/*/ "$1"/.[!.]*/; do
    [ -d "$below" ] && end "${below%/}"
  done
  if ! { [ -e "$1/cgroup.kill" ] && echo 1 > "$1/cgroup.kill"; }; then
    # Prevent new processes while the others are killed.
    [ -e "$1/pids.max" ] && echo 0 > "$1/pids.max"
    while read -r pid; do
      # A process of another namespace is listed as 0, and kill would take 0 as our own group.
      [ "$pid" -gt 0 ] && kill -9 "$pid"
    done < "$1/cgroup.procs"
  fi
  rmdir "$1"
}

# Several rounds, because a process that is just starting may be missed.
round=0
while [ $round -lt 200 ]; do
  left=
  for file in $(grep -ls "AGENT_BACKEND_PROCESS=[0-9a-f]*$mark-" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -9 "${pid%/environ}" && left=yes
  done
  [ "$left" ] || [ $round -lt 2 ] || break
  round=$((round + 1))
  sleep 0.05 || sleep 1
done

round=0
while [ $round -lt 200 ]; do
  left=
  for parent in "$@"; do
    for group in "$parent/$name"*; do
      [ -d "$group" ] || continue
      end "$group" || left=yes
    done
  done
  [ "$left" ] || break
  round=$((round + 1))
  sleep 0.05 || sleep 1
done

# Removes the placeholder $2 with the identity $1. The identity shows that neither the file nor a
# directory on the way was replaced. A process that still uses the placeholder holds a lock on it.
remove() {
  directory=${2%/*}
  cd -P -- "${directory:-/}" || return
  file=./${2##*/}
  [ "$(stat -c '%d:%i %a %s %Y' -- "$file")" = "$1 400 0 0" ] || return
  flock -n -x "$file" rm -f -- "$file"
}

while [ $slots -gt 0 ]; do
  eval "file=\${file$slots-}"
  [ -z "$file" ] || remove "${file%% *}" "${file#* }"
  slots=$((slots - 1))
done
cd /

while [ $count -gt 0 ]; do
  eval "place=\$place$count"
  for lent in "$place/$name"*; do
    # In a shared directory other users may create such names.
    [ -d "$lent" ] && [ ! -L "$lent" ] && [ -O "$lent" ] || continue
    # A private /tmp is a tmpfs mounted there.
    umount -l "$lent/tmp" 2> /dev/null
    rm -rf -- "$lent" || { chmod -R u+rwx "$lent" && rm -rf -- "$lent"; }
  done
  count=$((count - 1))
done
