# Waits until nobody holds the other end of its input, then ends what is in control groups whose
# names begin with $1, in the directories that follow, and removes them. Lines of input name
# directories in which directories with such names are removed as well.
name=$1
shift
count=0
while IFS= read -r line; do
  count=$((count + 1))
  eval "place$count=\$line"
done

end() {
  for below in "$1"/*/ "$1"/.[!.]*/; do
    [ -d "$below" ] && end "${below%/}"
  done
  if ! { [ -e "$1/cgroup.kill" ] && echo 1 > "$1/cgroup.kill"; }; then
    # Nobody is born while the others die.
    [ -e "$1/pids.max" ] && echo 0 > "$1/pids.max"
    while read -r pid; do
      # A process of another namespace is listed as 0, which would mean ourselves.
      [ "$pid" -gt 0 ] && kill -9 "$pid"
    done < "$1/cgroup.procs"
  fi
  rmdir "$1"
}

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

while [ $count -gt 0 ]; do
  eval "place=\$place$count"
  for lent in "$place/$name"*; do
    # Others may make such names in a directory that all share.
    [ -d "$lent" ] && [ ! -L "$lent" ] && [ -O "$lent" ] && rm -rf -- "$lent"
  done
  count=$((count - 1))
done
