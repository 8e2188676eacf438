# fish completion for spillway. The candidates come from the binary that is on the line, so policies, keys and names of
# any version appear by themselves.

# ":KIND KEPT PREFIX": files whose names begin with PREFIX, after KEPT in the same word.
function __spillway_files
    set -l parts (string split -m 2 ' ' -- $argv[1])
    set -l prefix $parts[3]
    set -l files $prefix*/
    switch $parts[1]
        case ':json'
            set files $files $prefix*.json
        case ':files'
            for file in $prefix*
                test -d $file; or set files $files $file
            end
    end
    for file in $files
        echo $parts[2]$file
    end
end

function __spillway_complete
    set -l words (commandline -opc)
    for candidate in ($words[1] complete --breaks '' -- (commandline -cp | string collect) 2>/dev/null)
        if string match -q ':*' -- $candidate
            __spillway_files $candidate
        else
            echo $candidate
        end
    end
end

complete -c spillway -f -a '(__spillway_complete)'
